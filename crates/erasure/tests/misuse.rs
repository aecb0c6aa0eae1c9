//! What callers can get wrong is an error that says so, and nothing was written by then.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use dolmen_erasure::{BlocksError, Change, Code, CodeError, Kernel, PlanError, Role, Shape};

fn code() -> Code {
    Code::new(Shape { data_count: 3, parity_count: 2 }).unwrap()
}

#[test]
fn shapes_beyond_the_limits_are_refused() {
    for (data_count, parity_count, expected) in [
        (0, 1, CodeError::DataCount { found: 0 }),
        (33, 1, CodeError::DataCount { found: 33 }),
        (1, 0, CodeError::ParityCount { found: 0 }),
        (1, 9, CodeError::ParityCount { found: 9 }),
        (usize::MAX, usize::MAX, CodeError::DataCount { found: usize::MAX }),
    ] {
        assert_eq!(Code::new(Shape { data_count, parity_count }), Err(expected));
    }
    assert!(Code::new(Shape { data_count: 32, parity_count: 8 }).is_ok());
    assert_eq!(CodeError::DataCount { found: 33 }.to_string(), "a code has 1 to 32 data columns, not 33");
}

#[test]
fn a_kernel_that_the_processor_lacks_is_refused_and_the_fastest_is_not() {
    let shape = Shape { data_count: 3, parity_count: 2 };
    for kernel in Kernel::ALL {
        let made = Code::with_kernel(shape, kernel);
        if kernel.is_available() {
            assert_eq!(made.unwrap().kernel(), kernel);
        } else {
            assert_eq!(made, Err(CodeError::Kernel { kernel }));
        }
    }
    assert_eq!(Code::new(shape).unwrap().kernel(), Kernel::fastest());
    assert!(Kernel::fastest() >= Kernel::Portable);
}

#[test]
fn plans_that_cannot_be_made_say_why() {
    for (given, wanted, expected) in [
        (&[0, 1][..], &[2][..], PlanError::TooFew { found: 2, expected: 3 }),
        (&[0, 1, 5], &[2], PlanError::NoSuchColumn { column: 5, column_max: 4 }),
        (&[0, 1, 3], &[usize::MAX], PlanError::NoSuchColumn { column: usize::MAX, column_max: 4 }),
        (&[0, 1, 1], &[2], PlanError::NamedTwice { column: 1 }),
        (&[0, 1, 3], &[1], PlanError::NamedTwice { column: 1 }),
        (&[0, 1, 3], &[2, 2], PlanError::NamedTwice { column: 2 }),
        (&[0, 1, 3, 2], &[2], PlanError::NamedTwice { column: 2 }),
    ] {
        assert_eq!(code().plan(given, wanted).unwrap_err(), expected);
    }
}

#[test]
fn blocks_that_do_not_fit_are_refused_before_anything_is_written() {
    let (long, short) = ([1; 8], [1; 7]);
    let fits: [Option<&[u8]>; 3] = [Some(&long), None, Some(&long)];
    let length = |role, place| BlocksError::Length { role, place, found_bytes: 7, expected_bytes: 8 };
    let (mut p, mut q) = ([5; 8], [5; 8]);
    for (data, expected) in [
        (&fits[..2], BlocksError::Count { role: Role::Data, found: 2, expected: 3 }),
        (&[Some(&long), Some(&short), None], length(Role::Data, 1)),
        (&[Some(&long), None, Some(&[])], BlocksError::Empty { role: Role::Data, place: 2 }),
    ] {
        assert_eq!(code().encode(data, &mut [Some(&mut p), Some(&mut q)]), Err(expected));
    }
    let few = BlocksError::Count { role: Role::Parity, found: 1, expected: 2 };
    assert_eq!(code().encode(&fits, &mut [Some(&mut p)]), Err(few));
    assert_eq!(code().encode(&fits, &mut [Some(&mut p), Some(&mut [0; 7])]), Err(length(Role::Parity, 1)));
    assert_eq!(
        code().encode(&fits, &mut [Some(&mut p), Some(&mut [])]),
        Err(BlocksError::Empty { role: Role::Parity, place: 1 })
    );
    let change = |column, old, new| Change { column, old, new };
    for (changes, expected) in [
        (vec![change(3, None, Some(&long[..]))], BlocksError::NoSuchColumn { column: 3, data_count: 3 }),
        (
            vec![change(2, None, Some(&long)), change(2, Some(&long), None)],
            BlocksError::ChangedTwice { column: 2 },
        ),
        (vec![change(0, Some(&long), None), change(1, Some(&long), Some(&short))], length(Role::Changes, 1)),
        (vec![change(0, Some(&[]), None)], BlocksError::Empty { role: Role::Changes, place: 0 }),
    ] {
        assert_eq!(code().update(&changes, &mut [Some(&mut p), Some(&mut q)]), Err(expected));
    }
    assert_eq!((p, q), ([5; 8], [5; 8]));
    let plan = code().plan(&[0, 1, 3], &[2, 4]).unwrap();
    for (sources, expected) in [
        (&[None; 2][..], BlocksError::Count { role: Role::Sources, found: 2, expected: 3 }),
        (&[None, Some(&short[..]), None], length(Role::Sources, 1)),
        (&[None, None, Some(&[])], BlocksError::Empty { role: Role::Sources, place: 2 }),
    ] {
        assert_eq!(plan.reconstruct(sources, &mut [&mut p, &mut q]), Err(expected));
    }
    let few = BlocksError::Count { role: Role::Targets, found: 1, expected: 2 };
    assert_eq!(plan.reconstruct(&[None; 3], &mut [&mut p]), Err(few));
    assert_eq!((p, q), ([5; 8], [5; 8]));
    assert_eq!(
        length(Role::Changes, 1).to_string(),
        "changes at place 1: 7 bytes, the first block of the stripe has 8"
    );
}

#[test]
fn nothing_wanted_is_nothing_done() {
    let block = [3; 9];
    code().encode(&[Some(&block), None, None], &mut [None, None]).unwrap();
    let mut p = [5; 9];
    code().update(&[], &mut [Some(&mut p), None]).unwrap();
    code().update(&[Change { column: 1, old: None, new: None }], &mut [Some(&mut p), None]).unwrap();
    assert_eq!(p, [5; 9]);
    code().plan(&[4, 3, 2], &[]).unwrap().reconstruct(&[None; 3], &mut []).unwrap();
}
