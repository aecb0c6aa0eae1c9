//! An error with its causes, as people read them: outermost first, none twice.

use std::error::Error;
use std::iter::successors;

/// What the causes of an error say, the nearest first. A transparent error repeats its cause, and one whose message goes on
/// behind it ("opening X: no such file; load the module") has it in its midst; either is said once.
#[must_use]
pub fn causes_of(error: &dyn Error) -> Vec<String> {
    let mut said = error.to_string();
    let mut causes = Vec::new();
    for cause in successors(error.source(), |cause| (*cause).source()) {
        let text = cause.to_string();
        if !said.contains(&text) {
            causes.push(text.clone());
            said = text;
        }
    }
    causes
}

/// An error and all its causes: `what failed: why: why that`.
#[must_use]
pub fn in_one_line(error: &dyn Error) -> String {
    causes_of(error).iter().fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Reported(&'static str, Option<Box<Reported>>);

    impl std::fmt::Display for Reported {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str(self.0)
        }
    }

    impl Error for Reported {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.1.as_deref().map(|cause| cause as &(dyn Error + 'static))
        }
    }

    #[test]
    fn an_error_that_repeats_its_cause_says_it_once() {
        let innermost = Reported("the disk is gone", None);
        let transparent = Reported("the disk is gone", Some(Box::new(innermost)));
        let error = Reported("nothing was flushed", Some(Box::new(transparent)));
        assert_eq!(in_one_line(&error), "nothing was flushed: the disk is gone");
        assert_eq!(causes_of(&error), ["the disk is gone"]);
        let cause = Reported("the disk is gone", None);
        let error = Reported("writing: the disk is gone; attach it", Some(Box::new(cause)));
        assert_eq!(in_one_line(&error), "writing: the disk is gone; attach it");
    }
}
