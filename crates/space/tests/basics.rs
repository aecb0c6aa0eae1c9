//! The plain life of spaces: made, written, read, flushed, reopened, each time ending in a check.

mod harness;

use dolmen_units::Bytes;
use harness::Bench;

/// Every resiliency: what was written is read, before and after the pool was closed and opened again.
#[test]
fn what_was_written_is_read_after_reopening() {
    for resiliency in harness::RESILIENCIES {
        let bench = Bench::new(1, 4, Bytes::mib(96));
        let outcome = bench.run(async move |lab| {
            let spaces = lab.create().await?;
            let space = lab.space(&spaces, "data", Bytes::mib(24), resiliency).await?;
            for (at, length, fill) in
                [(0, 4096, 1), (1 << 20, 256 * 1024, 2), (5 * 1024 * 1024 + 4096, 1 << 20, 3)]
            {
                lab.write(&space, at, length, fill).await?;
            }
            lab.expect(&space, 0, 4096, 1).await?;
            spaces.flush().await?;
            lab.write(&space, 1 << 20, 4096, 9).await?;
            spaces.close().await?;
            drop((space, spaces));
            let spaces = lab.open().await?;
            let space = spaces.find("data")?;
            lab.expect(&space, 0, 4096, 1).await?;
            lab.expect(&space, 1 << 20, 4096, 9).await?;
            lab.expect(&space, (1 << 20) + 4096, 252 * 1024, 2).await?;
            lab.expect(&space, 5 * 1024 * 1024 + 4096, 1 << 20, 3).await?;
            lab.expect(&space, 9 << 20, 8192, 0).await?;
            lab.check_and_close(spaces).await
        });
        outcome.unwrap();
    }
}
