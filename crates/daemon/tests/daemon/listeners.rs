//! Spaces over a network: who is let in, who is not, and what becomes of the others meanwhile.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rcgen::ExtendedKeyUsagePurpose::{ClientAuth, ServerAuth};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustls::ClientConfig;
use serde_json::{Value, json};

use crate::client::{Nbd, World, eventually, option, pattern, take_greeting};
use crate::pki::{
    Authority, FUTURE, Files, NOW, PAST, Tls, ask, client_of, connect, free_address, reply, start_tls,
    tls_over,
};

const SERVE: &str = "/v1/pools/tank/spaces/m/serve";
const UNSERVE: &str = "/v1/pools/tank/spaces/m/unserve";
const ERROR: u32 = 1 << 31;
const POLICY: u32 = ERROR + 2;
const INVALID: u32 = ERROR + 3;
const TLS_REQUIRED: u32 = ERROR + 5;
const UNKNOWN: u32 = ERROR + 6;
/// Connections at a time, as documented.
const PENDING_MAX: usize = 256;
/// Connections of one address, as documented.
const OF_ADDRESS_MAX: usize = 128;

fn tank() -> World {
    let world = World::new(2);
    world.make_tank(&["d0", "d1"]);
    world
}

/// A tank that is served on a listener with TLS, and the files of that listener.
fn over_tls(allow: &[&str]) -> (World, Files, SocketAddr) {
    let world = tank();
    let files = Files::new(world.folder.path());
    let at = free_address();
    let change = world.post(SERVE, &files.request(at, allow));
    assert_eq!(change["export"]["network"]["uri"], json!(format!("nbds://{at}/tank/m")));
    (world, files, at)
}

/// Through all of it; the error is what a client that is not let in sees.
fn enter(at: SocketAddr, config: Arc<ClientConfig>) -> std::io::Result<Nbd<Tls>> {
    Nbd::chosen(start_tls(at, config)?, "tank/m")
}

/// The data of an option that names an export.
fn named(name: &str) -> Vec<u8> {
    [&u32::try_from(name.len()).unwrap().to_be_bytes()[..], name.as_bytes(), &[0, 0]].concat()
}

fn lists(stream: &mut (impl Read + Write)) -> usize {
    stream.write_all(&option(3, &[])).unwrap();
    let mut count = 0;
    while reply(stream).unwrap().0 == 2 {
        count += 1;
    }
    count
}

#[test]
fn a_plain_listener_opens_on_loopback_alone() {
    // Scenario: addresses that others reach, without TLS; then loopback, a restart, and the end of it. Expected: refused
    // before anything listens; served on both ways in, again after the restart; and nobody answers at the end.
    let mut world = tank();
    for listen in ["0.0.0.0:10809", "[::]:10809", "10.0.0.1:10809", "127.0.0.1:0", "localhost:10809", ""] {
        let error = world.refused(SERVE, &json!({"network": {"listen": listen}}));
        assert_eq!(error["code"], "bad_request", "{listen}: {error}");
    }
    let at = free_address();
    let request = json!({"network": {"listen": at}});
    let change = world.post(SERVE, &request);
    assert_eq!(change["export"]["network"]["uri"], json!(format!("nbd://{at}/tank/m")));
    Nbd::greeted(connect(at), "tank/m").write(0, &pattern(1, 1 << 20));
    assert!(world.nbd().read(0, 1 << 20) == pattern(1, 1 << 20), "both ways lead to one space");
    world.kill();
    world.start();
    let stream = eventually("the listener is open again", || TcpStream::connect(at).ok());
    assert!(Nbd::greeted(stream, "").read(0, 1 << 20) == pattern(1, 1 << 20));
    let again = world.post(SERVE, &request);
    assert_eq!(again["is_changed"], false, "{again}");
    let other = world.refused(SERVE, &json!({"network": {"listen": free_address()}}));
    assert_eq!(other["code"], "busy");
    eventually("the client's session ends", || {
        world.try_ask("POST", UNSERVE, b"{}").filter(|(status, _)| *status == 200)
    });
    assert!(TcpStream::connect(at).is_err(), "nobody listens");
}

#[test]
fn a_space_that_is_not_served_on_a_listener_does_not_exist_there() {
    let world = tank();
    let other = json!({"name": "other", "size_bytes": 1 << 20, "resiliency": "mirror", "row_bytes": 1 << 20});
    world.post("/v1/pools/tank/spaces", &other);
    world.post("/v1/pools/tank/spaces/other/serve", &json!({}));
    let at = free_address();
    world.post(SERVE, &json!({"network": {"listen": at}}));
    let mut stream = connect(at);
    take_greeting(&mut stream);
    stream.write_all(&3u32.to_be_bytes()).unwrap();
    assert_eq!(lists(&mut stream), 1);
    assert_eq!(ask(&mut stream, 6, &named("tank/other")).unwrap().0, UNKNOWN);
    // The default is the only one that there is here.
    assert_eq!(ask(&mut stream, 6, &named("")).unwrap().0, 1);
}

#[test]
fn a_tls_listener_admits_only_clients_signed_by_its_authority() {
    let (world, files, at) = over_tls(&[]);
    let good = files.ca.client("alpha");
    let mut client = enter(at, files.client(Some(&good))).unwrap();
    client.write(1 << 20, &pattern(2, 3 << 20));
    client.flush();
    assert!(client.read(1 << 20, 3 << 20) == pattern(2, 3 << 20));
    assert!(world.nbd().read(1 << 20, 3 << 20) == pattern(2, 3 << 20));
    let other = Authority::new("ca", NOW);
    for (what, pair) in [
        ("none", None),
        ("of another authority of the same name", Some(other.client("alpha"))),
        ("expired", Some(files.ca.sign("alpha", PAST, ClientAuth))),
        ("not valid yet", Some(files.ca.sign("alpha", FUTURE, ClientAuth))),
        ("of a server", Some(files.ca.sign("alpha", NOW, ServerAuth))),
    ] {
        assert!(enter(at, files.client(pair.as_ref())).is_err(), "a certificate that is {what}");
    }
    // A client that takes only servers of another authority leaves by itself.
    assert!(enter(at, client_of(&other, Some(&good))).is_err());
    assert!(client.read(1 << 20, 1 << 20) == pattern(2, 3 << 20)[..1 << 20], "who is in stays in");
}

#[test]
fn nothing_is_served_or_kept_in_the_clear() {
    let (_world, files, at) = over_tls(&[]);
    let good = files.client(Some(&files.ca.client("alpha")));
    // All that could be asked for without TLS.
    let mut stream = connect(at);
    take_greeting(&mut stream);
    stream.write_all(&3u32.to_be_bytes()).unwrap();
    for (number, data) in
        [(3, vec![]), (6, named("tank/m")), (7, named("tank/m")), (8, vec![]), (99, vec![1; 5])]
    {
        assert_eq!(ask(&mut stream, number, &data).unwrap().0, TLS_REQUIRED, "option {number}");
    }
    // Structured replies were refused; behind TLS they are not there either, until they are asked for.
    assert_eq!(ask(&mut stream, 5, &[]).unwrap().0, 1);
    let mut tls = tls_over(stream, Arc::clone(&good)).unwrap();
    assert_eq!(ask(&mut tls, 9, &[&named("tank/m")[..], &[0, 0]].concat()).unwrap().0, INVALID);
    assert_eq!(ask(&mut tls, 5, &[]).unwrap().0, INVALID, "TLS is negotiated once");
    assert_eq!(ask(&mut tls, 8, &[]).unwrap().0, 1);
    // The old option that cannot be refused ends the connection.
    let mut stream = connect(at);
    take_greeting(&mut stream);
    stream.write_all(&[&3u32.to_be_bytes()[..], &option(1, b"tank/m")].concat()).unwrap();
    assert_eq!(stream.read(&mut [0; 100]).unwrap_or(0), 0);
    // Somebody between puts options behind STARTTLS in the clear, before the client's own TLS.
    let mut stream = connect(at);
    take_greeting(&mut stream);
    let injected =
        [&3u32.to_be_bytes()[..], &option(5, &[]), &option(8, &[]), &option(1, b"tank/m")].concat();
    stream.write_all(&injected).unwrap();
    assert_eq!(reply(&mut stream).unwrap().0, 1);
    assert!(tls_over(stream, good).is_err(), "what follows in the clear is no TLS");
}

#[test]
fn only_names_that_are_allowed_open_a_space_or_see_it() {
    let (world, files, at) = over_tls(&["alpha", "BETA.example"]);
    for (name, is_allowed) in [("alpha", true), ("beta", true), ("gamma", false), ("alpha2", false)] {
        let mut tls = start_tls(at, files.client(Some(&files.ca.client(name)))).unwrap();
        assert_eq!(lists(&mut tls), usize::from(is_allowed), "{name}");
        let expected = if is_allowed { 1 } else { POLICY };
        assert_eq!(ask(&mut tls, 6, &named("tank/m")).unwrap().0, expected, "{name}");
        assert_eq!(Nbd::chosen(tls, "tank/m").is_ok(), is_allowed, "{name}");
    }
    let network = &world.get("/v1/exports")["exports"][0]["network"];
    assert_eq!(network["allow"], json!(["alpha", "BETA.example"]));
}

/// Puts something wrong in the place of one file, and expects the command to say so, and nothing to have come of it.
fn expect_refused(world: &World, files: &Files, at: SocketAddr, text: &str, change: impl FnOnce(&Files)) {
    let names = ["server.pem", "server.key", "clients.pem"];
    let before = names.map(|name| fs::read_to_string(files.path(name)).unwrap());
    change(files);
    let error = world.refused(SERVE, &files.request(at, &[]));
    let message = error["message"].as_str().unwrap();
    assert!(message.contains(text) && message.ends_with("; nothing was changed"), "{text:?}: {message}");
    assert!(TcpStream::connect(at).is_err(), "nobody listens");
    for (name, text) in names.iter().zip(before) {
        let _ = fs::remove_file(files.path(name));
        let _ = fs::remove_dir(files.path(name));
        files.put(name, &text, 0o600);
    }
}

#[test]
fn files_that_cannot_be_used_are_named_by_the_command_and_not_by_the_first_client() {
    let world = tank();
    let files = Files::new(world.folder.path());
    let at = free_address();
    let ca = |years| Authority::new("old", years);
    let of_server = |years| files.ca.sign("server", years, ServerAuth).certificate;
    let refused = |text: &str, change: &dyn Fn(&Files)| expect_refused(&world, &files, at, text, change);
    refused("reading the certificate", &|files| fs::remove_file(files.path("server.pem")).unwrap());
    refused("is no regular file", &|files| {
        fs::remove_file(files.path("server.key")).unwrap();
        fs::create_dir(files.path("server.key")).unwrap();
    });
    refused("has 1048577 bytes", &|files| files.put("clients.pem", &"x".repeat((1 << 20) + 1), 0o600));
    refused("others can read it; chmod o=", &|files| {
        files.put("server.key", &fs::read_to_string(files.path("server.key")).unwrap(), 0o644);
    });
    refused("others can write it; chmod go-w", &|files| {
        files.put("clients.pem", &fs::read_to_string(files.path("clients.pem")).unwrap(), 0o664);
    });
    refused("holds no certificate", &|files| files.put("server.pem", "", 0o600));
    refused("holds no certificate", &|files| {
        files.put("clients.pem", &fs::read_to_string(files.path("server.key")).unwrap(), 0o600);
    });
    refused("holds no private key", &|files| {
        files.put("server.key", &fs::read_to_string(files.path("server.pem")).unwrap(), 0o600);
    });
    refused("encrypted with a passphrase", &|files| {
        let text = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIGb\n-----END ENCRYPTED PRIVATE KEY-----\n";
        files.put("server.key", text, 0o600);
    });
    refused("is not in PEM form", &|files| {
        files.put("server.pem", "-----BEGIN CERTIFICATE-----\n@@@\n-----END CERTIFICATE-----\n", 0o600);
    });
    refused("something that is no certificate, as number 1", &|files| {
        files.put("server.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", 0o600);
    });
    refused("does not belong to the certificate", &|files| {
        files.put("server.key", &files.ca.server().key, 0o600);
    });
    refused("has expired: it was valid until 2001-01-01", &|files| {
        files.put("server.pem", &of_server(PAST), 0o600);
    });
    refused("is valid from 2190-01-01 on, which is not yet", &|files| {
        files.put("server.pem", &of_server(FUTURE), 0o600);
    });
    refused("the authority of clients", &|files| {
        let pair = ca(PAST).sign("x", PAST, ClientAuth);
        files.put("clients.pem", &pair.certificate, 0o600);
    });
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let error = world.refused(SERVE, &files.request(taken.local_addr().unwrap(), &[]));
    assert!(error["message"].as_str().unwrap().contains("in use"), "{error}");
    // Now as it should be; the same port with other files is another matter.
    world.post(SERVE, &files.request(at, &[]));
    let other = json!({"name": "other", "size_bytes": 1 << 20, "resiliency": "mirror", "row_bytes": 1 << 20});
    world.post("/v1/pools/tank/spaces", &other);
    let mut request = files.request(at, &[]);
    request["network"]["tls"]["client_ca"] = json!(files.path("server.pem"));
    let error = world.refused("/v1/pools/tank/spaces/other/serve", &request);
    assert_eq!(error["code"], "busy", "{error}");
    world.post("/v1/pools/tank/spaces/other/serve", &files.request(at, &[]));
    assert_eq!(enter(at, files.client(Some(&files.ca.client("alpha")))).unwrap().size, 32 << 20);
}

#[test]
fn files_that_change_count_from_the_next_client_on_and_bad_ones_do_not() {
    // Scenario: the authority is exchanged under an open listener, by the files alone; then garbage; then back again by the
    // command. Expected: the new one counts within seconds; garbage changes nothing; who is in stays in.
    let (world, files, at) = over_tls(&[]);
    let (new, old) = (Files::new(&tempfile::tempdir().unwrap().keep()), files.ca.client("old"));
    let mut inside = enter(at, files.client(Some(&old))).unwrap();
    for name in ["server.key", "server.pem", "clients.pem"] {
        files.put(name, &fs::read_to_string(new.path(name)).unwrap(), 0o600);
    }
    let pair = new.ca.client("new");
    eventually("the new authority counts", || enter(at, new.client(Some(&pair))).ok());
    assert!(enter(at, files.client(Some(&old))).is_err(), "the old one counts no more");
    files.put("server.pem", "garbage", 0o600);
    let error = world.refused(SERVE, &files.request(at, &[]));
    assert!(error["message"].as_str().unwrap().contains("holds no certificate"), "{error}");
    assert!(enter(at, new.client(Some(&pair))).is_ok(), "what was good stays in use");
    let server = files.ca.server();
    files.put("server.key", &server.key, 0o600);
    files.put("server.pem", &server.certificate, 0o600);
    world.post(SERVE, &files.request(at, &[]));
    assert!(enter(at, files.client(Some(&pair))).is_ok(), "what the command has checked counts at once");
    assert_eq!(inside.read(0, 4096).len(), 4096);
    fs::remove_dir_all(new.path("")).unwrap();
}

#[test]
fn a_listener_that_cannot_open_at_start_is_reported_and_retried() {
    let (mut world, files, at) = over_tls(&[]);
    let key = fs::read_to_string(files.path("server.key")).unwrap();
    fs::remove_file(files.path("server.key")).unwrap();
    world.kill();
    world.start();
    let network = |world: &World| world.get("/v1/exports")["exports"][0]["network"].clone();
    eventually("it is told", || {
        network(&world)["problem"].as_str().filter(|text| text.contains("reading the key")).map(drop)
    });
    let status = world.get("/v1/status");
    assert_eq!(status["health"], "warning");
    let why = status["why"].to_string();
    assert!(why.contains(&format!("nobody can connect to {at}")) && why.contains("reading the key"), "{why}");
    assert_eq!(world.nbd().size, 32 << 20, "the other way in is open");
    files.put("server.key", &key, 0o600);
    let config = files.client(Some(&files.ca.client("alpha")));
    eventually("it is open", || TcpStream::connect(at).ok());
    assert_eq!(enter(at, config).unwrap().size, 32 << 20);
    assert_eq!(network(&world)["problem"], Value::Null);
    assert_eq!(world.get("/v1/status")["health"], "healthy");
}

#[test]
fn a_closed_listener_can_open_again_at_once() {
    // Scenario: served, and served no more, without a pause between, with and without TLS on one address.
    let (world, files, at) = over_tls(&[]);
    let config = files.client(Some(&files.ca.client("alpha")));
    for _ in 0..20 {
        world.post(UNSERVE, &json!({}));
        assert!(TcpStream::connect(at).is_err(), "nobody listens");
        world.post(SERVE, &json!({"network": {"listen": at}}));
        world.post(UNSERVE, &json!({}));
        assert!(TcpStream::connect(at).is_err(), "nobody listens");
        world.post(SERVE, &files.request(at, &[]));
    }
    assert_eq!(enter(at, config).unwrap().size, 32 << 20);
}

fn open_files(world: &World) -> usize {
    fs::read_dir(format!("/proc/{}/fd", world.pid())).unwrap().count()
}

fn resident_kib(world: &World) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", world.pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Lets this process have as many sockets as the system allows.
fn allow_many_files() {
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
}

#[test]
fn thousands_of_pending_connections_are_bounded_and_block_no_client() {
    // Scenario: 3,000 connections that stay: some say nothing, some ask for TLS and send half of it. Expected: the daemon
    // holds a bounded number of them and little memory, and clients come in by TLS and by the Unix socket meanwhile.
    allow_many_files();
    let (world, files, at) = over_tls(&[]);
    let config = files.client(Some(&files.ca.client("alpha")));
    let mut inside = enter(at, Arc::clone(&config)).unwrap();
    let (files_before, kib_before) = (open_files(&world), resident_kib(&world));
    let mut flood = Vec::new();
    for number in 0..3000 {
        let mut stream = connect(at);
        let words =
            [&3u32.to_be_bytes()[..], &option(5, &[]), b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc"].concat();
        match number % 3 {
            0 => {}
            1 => stream.write_all(&words[..4]).unwrap(),
            // Whom the daemon has pushed out already meets an error here.
            _ => drop(stream.write_all(&words)),
        }
        flood.push(stream);
        if number % 500 == 250 {
            assert_eq!(enter(at, Arc::clone(&config)).unwrap().size, 32 << 20, "behind {number} connections");
            assert_eq!(world.nbd().size, 32 << 20);
            assert_eq!(inside.read(0, 4096).len(), 4096);
        }
    }
    let (files_now, kib_now) = (open_files(&world), resident_kib(&world));
    assert!(files_now <= files_before + PENDING_MAX + 16, "{files_before} files before, {files_now} now");
    assert!(kib_now < kib_before + 32 * 1024, "{kib_before} KiB before, {kib_now} now");
    drop(flood);
    eventually("they are forgotten", || (open_files(&world) <= files_before + 4).then_some(()));
}

#[test]
fn the_limit_of_connections_says_so_and_leaves_room_for_the_unix_socket() {
    let world = tank();
    let at = free_address();
    world.post(SERVE, &json!({"network": {"listen": at}}));
    let mut inside: Vec<_> = (0..OF_ADDRESS_MAX).map(|_| Nbd::greeted(connect(at), "tank/m")).collect();
    let mut late = connect(at);
    take_greeting(&mut late);
    late.write_all(&3u32.to_be_bytes()).unwrap();
    for (number, data) in [(3, vec![]), (7, named("tank/m"))] {
        let (kind, text) = ask(&mut late, number, &data).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert_eq!(kind, POLICY);
        assert!(
            text.contains(&format!("has {OF_ADDRESS_MAX} connections from your address already")),
            "{text}"
        );
    }
    drop(late);
    assert_eq!(world.nbd().size, 32 << 20);
    drop(inside.pop());
    let mut again = eventually("a place is free", || {
        let mut stream = connect(at);
        take_greeting(&mut stream);
        stream.write_all(&3u32.to_be_bytes()).unwrap();
        Nbd::chosen(stream, "tank/m").ok()
    });
    assert_eq!(again.read(0, 4096).len(), 4096);
}

#[test]
fn a_connection_that_ends_at_any_step_leaves_no_residue() {
    // Scenario: clients with TLS that vanish, with and without a reset, after each step up to the middle of a write.
    // Expected: every descriptor is given back, the space is not held, and the next client is served.
    let (world, files, at) = over_tls(&[]);
    let config = files.client(Some(&files.ca.client("alpha")));
    drop(enter(at, Arc::clone(&config)).unwrap());
    let before = eventually("the first has left", || {
        let count = open_files(&world);
        (world.get("/v1/exports")["exports"][0]["client_count"] == 0).then_some(count)
    });
    let starttls = [&3u32.to_be_bytes()[..], &option(5, &[])].concat();
    let request = |kind: u16, length: u32| {
        [&0x2560_9513u32.to_be_bytes()[..], &[0, 0], &kind.to_be_bytes(), &[0; 16], &length.to_be_bytes()]
            .concat()
    };
    for with_reset in [false, true] {
        for step in 0..9 {
            let mut stream = connect(at);
            if with_reset {
                rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
            }
            take_greeting(&mut stream);
            stream.write_all(&starttls[..[0, 4, 10, starttls.len()][step.min(3)]]).unwrap();
            if step <= 3 {
                continue;
            }
            assert_eq!(reply(&mut stream).unwrap().0, 1);
            if step == 4 {
                stream.write_all(b"\x16\x03\x01\x02\x00\x01\x00").unwrap();
                continue;
            }
            let mut tls = tls_over(stream, Arc::clone(&config)).unwrap();
            if step == 5 {
                tls.write_all(&option(7, &named("tank/m"))[..9]).unwrap();
                continue;
            }
            let mut nbd = Nbd::chosen(tls, "tank/m").unwrap();
            match step {
                6 => {}
                // It asks for much and takes nothing; it begins a write and does not go on.
                7 => (0..20).for_each(|_| nbd.stream.write_all(&request(0, 1 << 20)).unwrap()),
                _ => nbd.stream.write_all(&[request(1, 1 << 20), vec![7; 100_000]].concat()).unwrap(),
            }
        }
    }
    eventually("all is given back", || {
        let count = &world.get("/v1/exports")["exports"][0]["client_count"];
        (*count == 0 && open_files(&world) <= before).then_some(())
    });
    assert_eq!(enter(at, config).unwrap().read(0, 1 << 20), vec![0; 1 << 20], "half a write is none");
}

#[test]
fn a_client_with_tls_that_stays_does_not_hold_up_the_end() {
    let (mut world, files, at) = over_tls(&[]);
    let config = files.client(Some(&files.ca.client("alpha")));
    let mut client = enter(at, Arc::clone(&config)).unwrap();
    client.write(0, &pattern(4, 1 << 20));
    let connection = connect(at);
    world.post("/v1/shutdown", &json!({"hand_over": true}));
    assert!(world.ended().success());
    let mut rest = Vec::new();
    let _ = client.stream.read_to_end(&mut rest);
    assert!(rest.is_empty(), "nothing was asked for");
    drop(connection);
    world.start();
    let stream = eventually("the listener is open again", || TcpStream::connect(at).ok());
    drop(stream);
    assert!(
        enter(at, config).unwrap().read(0, 1 << 20) == pattern(4, 1 << 20),
        "what was acknowledged is there"
    );
}

#[test]
fn a_new_size_is_seen_by_new_connections_and_old_ones_go_on_in_theirs() {
    let world = tank();
    let at = free_address();
    world.post(SERVE, &json!({"network": {"listen": at}}));
    let mut old = Nbd::greeted(connect(at), "tank/m");
    let resize = |mib: u64| json!({"size_bytes": mib << 20});
    world.post("/v1/pools/tank/spaces/m/resize", &resize(48));
    let mut new = Nbd::greeted(connect(at), "tank/m");
    assert_eq!((old.size, new.size, world.nbd().size), (32 << 20, 48 << 20, 48 << 20));
    new.write(40 << 20, &pattern(5, 1 << 20));
    assert_eq!(old.try_read(40 << 20, 4096), Err(22), "beyond what it was told");
    old.write(31 << 20, &pattern(6, 1 << 20));
    assert!(new.read(31 << 20, 1 << 20) == pattern(6, 1 << 20));
    let error = world.refused("/v1/pools/tank/spaces/m/resize", &resize(16));
    assert_eq!(error["code"], "busy", "a client may be using what would be cut off: {error}");
    new.trim(31 << 20, 17 << 20);
    drop((old, new));
    eventually("they have left", || {
        world
            .try_ask("POST", "/v1/pools/tank/spaces/m/resize", resize(16).to_string().as_bytes())
            .filter(|answer| answer.0 == 200)
    });
    assert_eq!(Nbd::greeted(connect(at), "tank/m").size, 16 << 20);
}

/// A day of the calendar, so many days from now.
fn day_in(days: u64) -> (i32, u8, u8) {
    let now = rustls::pki_types::UnixTime::now().as_secs();
    let mut left = i32::try_from(now / 86_400 + days).unwrap();
    let mut year = 1970;
    let is_long = |year: i32| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    while left >= 365 + i32::from(is_long(year)) {
        left -= 365 + i32::from(is_long(year));
        year += 1;
    }
    let of_february = 28 + i32::from(is_long(year));
    let mut month = 1;
    for days in [31, of_february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if left < days {
            break;
        }
        left -= days;
        month += 1;
    }
    (year, month, u8::try_from(left + 1).unwrap())
}

#[test]
fn the_status_reports_certificates_that_expire_while_their_listener_is_open() {
    // Scenario: a listener is open, and all is well; its certificate is exchanged for one that ends soon, then for one that has
    // ended, and then for a good one.
    let (world, files, at) = over_tls(&[]);
    let stated = |what: &'static str| {
        eventually(what, || {
            let status = world.get("/v1/status");
            let why = status["why"].to_string();
            let is_so = match what {
                "" => status["health"] == "healthy",
                what => status["health"] == "warning" && why.contains(what) && why.contains(&at.to_string()),
            };
            is_so.then_some(())
        });
    };
    stated("");
    let (year, month, day) = day_in(10);
    let soon = files.ca.sign_until("server", (year, month, day), ServerAuth);
    let past = files.ca.sign("server", PAST, ServerAuth);
    for (pair, what) in [(soon, "expires on"), (past, "has expired"), (files.ca.server(), "")] {
        files.put("server.key", &pair.key, 0o600);
        files.put("server.pem", &pair.certificate, 0o644);
        stated(what);
    }
}

/// Seconds since 1970.
fn now() -> u64 {
    rustls::pki_types::UnixTime::now().as_secs()
}

#[test]
fn an_authority_that_expires_under_an_open_listener_admits_no_more_clients() {
    // Scenario: of two authorities of a listener one ends within seconds, while the listener is open and its files stay as they
    // are; a client of it is in. Expected: it lets clients in as long as it is valid, and nobody behind its end; who was signed by
    // the other still gets in, who is in stays in; and the status tells of it.
    let (world, files, at) = over_tls(&[]);
    let lasting = files.client(Some(&files.ca.client("lasting")));
    let mut lifetime_s = 8;
    let (mut inside, ending, ends) = loop {
        let ends = now() + lifetime_s;
        let authority = Authority::ending_at("ending", ends);
        // Its clients take the server of the other one.
        let ending = files.client(Some(&authority.client("ending")));
        files.put("clients.pem", &format!("{}{}", authority.pem, files.ca.pem), 0o644);
        let request = files.request(at, &[]).to_string();
        let (status, answer) = world.try_ask("POST", SERVE, request.as_bytes()).unwrap();
        match enter(at, Arc::clone(&ending)) {
            Ok(client) if status == 200 => break (client, ending, ends),
            // This machine was too slow for it.
            Ok(_) | Err(_) => {
                assert!(now() >= ends && lifetime_s < 600, "it is valid until {ends}: {answer}")
            }
        }
        lifetime_s *= 2;
    };
    while now() <= ends {
        let is_refused = enter(at, Arc::clone(&ending)).is_err();
        assert!(!is_refused || now() >= ends, "it is valid until {ends}");
        #[allow(clippy::disallowed_methods, reason = "the daemon under test lives in real time")]
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(enter(at, Arc::clone(&ending)).is_err(), "it has ended");
    assert!(enter(at, lasting).is_ok(), "the other one has not");
    assert_eq!(inside.read(0, 4096).len(), 4096);
    eventually("it is told", || {
        let status = world.get("/v1/status");
        let is_reported = status["why"].to_string().contains("clients.pem has expired");
        (status["health"] == "warning" && is_reported).then_some(())
    });
}
