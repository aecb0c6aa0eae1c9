//! The table of verbs, and what is made of it.
// The macro declares public items, as the table of the API needs them.
#![allow(unreachable_pub)]

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use crate::openapi::Operations;
use crate::verb_declaration::{declare_verbs, query_of};
use crate::verb_page::page_of;
use crate::{
    CallerRole, Change, ErrorCode, EventsQuery, JobStart, Nothing, Repeat, Simple, Status, Verb, VerbId,
    VerbVisitor, openapi, verb_page,
};

declare_verbs! {
    /// A table of the test.
    pub enum TestVerb, mod test_verb, fn visit_test_verbs;

    /// Polishes a stone.
    PolishStone = change "/pools/{pool}/stones/{stone}/polish" [pool, stone] Simple, Operator, Same, Maybe, [Unsupported];
    /// Lists stones.
    ListStones = question "/stones" [] EventsQuery => Status, Viewer, [];
}

/// Names of requests of changes that a visitor has met.
#[derive(Default)]
struct Requests(Vec<&'static str>);

impl VerbVisitor for Requests {
    fn question<V: Verb>(&mut self) {}

    fn change<V: Verb<Answer = Change>>(&mut self) {
        assert!(crate::read_request::<V::Request>(br#"{"dry_run":true}"#).is_ok());
        self.0.push(V::DECLARATION.request);
    }
}

/// Scenario: a test declares two verbs. Path, errors, query, page, OpenAPI entry and the visit of the fuzzer follow from the two
/// declarations alone.
#[test]
fn one_declaration_is_all_that_a_verb_needs() {
    let polish = TestVerb::PolishStone.declaration();
    assert_eq!(polish.path_of(&["a pool", "ä/1"]), "/v1/pools/a%20pool/stones/%C3%A4%2F1/polish");
    assert!(
        polish.fits("POST", "/v1/pools/x/stones/y/polish")
            && !polish.fits("GET", "/v1/pools/x/stones/y/polish")
    );
    let errors = polish.errors();
    let has = |code| errors.contains(&code);
    assert!(has(ErrorCode::NoSuchPool) && has(ErrorCode::Unsupported) && has(ErrorCode::ReadOnly));
    assert!(
        !has(ErrorCode::NoSuchDisk)
            && !TestVerb::ListStones.declaration().errors().contains(&ErrorCode::ReadOnly)
    );

    let mut requests = Requests::default();
    visit_test_verbs(&mut requests);
    assert_eq!(requests.0, ["Simple"]);

    let page = page_of(TestVerb::ALL.iter().map(|verb| verb.declaration()));
    let row = "| `PolishStone` | `POST /v1/pools/{pool}/stones/{stone}/polish` | Simple | Change | operator | yes | yes |";
    assert!(page.contains(row) && page.contains("| `PolishStone` | Polishes a stone. |"), "{page}");

    let mut operations = Operations::default();
    visit_test_verbs(&mut operations);
    let document: Value = serde_json::from_str(&operations.document()).unwrap();
    let described = &document["paths"]["/v1/pools/{pool}/stones/{stone}/polish"]["post"];
    assert_eq!(described["operationId"], "PolishStone");
    let facts = &described["x-dolmen"];
    assert_eq!((&facts["role"], &facts["idempotent"]), (&"operator".into(), &true.into()));
    assert!(facts["job"] == true && facts["error_codes"].to_string().contains("\"unsupported\""), "{facts}");
    assert_eq!(described["parameters"][1]["name"], "stone");
    let body = &described["requestBody"];
    assert_eq!(body["content"]["application/json"]["schema"]["$ref"], "#/components/schemas/Simple");
    assert!(document["components"]["schemas"]["Simple"]["properties"]["dry_run"].is_object());
    let query: BTreeSet<&str> = document["paths"]["/v1/stones"]["get"]["parameters"]
        .as_array()
        .unwrap()
        .iter()
        .map(|parameter| parameter["name"].as_str().unwrap())
        .collect();
    assert_eq!(query, BTreeSet::from(["since", "pool"]));
}

#[test]
fn a_query_has_the_fields_that_are_not_null() {
    let query =
        |since, pool: Option<&str>| query_of(&EventsQuery { since, pool: pool.map(str::to_owned) }).unwrap();
    assert_eq!(query(7, None), "?since=7");
    assert_eq!(query(0, Some("a&b")), "?pool=a%26b&since=0");
    assert_eq!(query_of(&Nothing {}).unwrap(), "");
}

/// Scenario: the whole table. No two verbs share method and path, the parameters of a path are those declared, in order, and a
/// question has the lowest role and starts no job.
#[test]
fn the_table_of_verbs_is_sound() {
    let mut known = BTreeSet::new();
    for verb in VerbId::ALL {
        let declaration = verb.declaration();
        assert!(known.insert((declaration.kind.method(), declaration.path)), "{declaration:?}");
        let in_path: Vec<&str> = declaration
            .path
            .split('/')
            .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
            .collect();
        assert_eq!(in_path, declaration.parameters, "{declaration:?}");
        assert!(declaration.help.ends_with('.') && !declaration.help.starts_with(' '), "{declaration:?}");
        if declaration.kind.method() == "GET" {
            let found = (declaration.role, declaration.repeat, declaration.job);
            assert_eq!(found, (CallerRole::Viewer, Repeat::Same, JobStart::Never), "{declaration:?}");
        }
    }
    let mut requests = Requests::default();
    crate::visit_verbs(&mut NoCheck(&mut requests));
    assert!(requests.0.len() > 40, "{:?}", requests.0);
}

/// Counts changes, whatever their requests need.
struct NoCheck<'a>(&'a mut Requests);

impl VerbVisitor for NoCheck<'_> {
    fn question<V: Verb>(&mut self) {}

    fn change<V: Verb<Answer = Change>>(&mut self) {
        self.0.0.push(V::DECLARATION.request);
    }
}

/// Scenario: the documents in `docs/api` are compared with the table and the types, so that a change of the API is a change of
/// these files. DOLMEN_UPDATE_GOLDEN=1 writes them.
#[test]
fn the_documents_of_the_api_are_up_to_date() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/api");
    for (name, found) in [("README.md", verb_page()), ("openapi.json", openapi() + "\n")] {
        let path = folder.join(name);
        if std::env::var_os("DOLMEN_UPDATE_GOLDEN").is_some() {
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(&path, &found).unwrap();
        }
        let expected = std::fs::read_to_string(&path).unwrap();
        assert_eq!(found, expected, "{}: DOLMEN_UPDATE_GOLDEN=1 writes it again", path.display());
    }
}

/// Scenario: every reference of the description leads to a schema, and every verb has its operation.
#[test]
fn the_openapi_description_is_whole() {
    let text = openapi();
    assert!((0..8).all(|_| openapi() == text), "the description differs from one time to the next");
    let document: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(document["openapi"], "3.1.0");
    let schemas = &document["components"]["schemas"];
    let mut references = 0;
    for part in text.split("#/components/schemas/").skip(1) {
        let name = part.split('"').next().unwrap();
        assert!(schemas[name].is_object(), "{name} has no schema");
        references += 1;
    }
    assert!(references > 100, "{references}");
    for verb in VerbId::ALL {
        let declaration = verb.declaration();
        let method = declaration.kind.method().to_lowercase();
        let operation = &document["paths"][declaration.route()][&method];
        assert_eq!(operation["operationId"], declaration.name);
    }
}

/// Scenario: each object of the description has fields. An object without them tells a client nothing of what it holds.
#[test]
fn every_object_of_the_description_has_fields() {
    let document: Value = serde_json::from_str(&openapi()).unwrap();
    let mut left = vec![&document["components"]["schemas"]];
    let mut objects = 0;
    while let Some(value) = left.pop() {
        if value["type"] == "object" {
            objects += 1;
            assert!(value["properties"].is_object(), "an object without fields: {value}");
        }
        match value {
            Value::Object(fields) => left.extend(fields.values()),
            Value::Array(items) => left.extend(items),
            _ => {}
        }
    }
    assert!(objects > 100, "{objects}");
}

/// Scenario: the number of a job is a number in the path too, and every other parameter is text.
#[test]
fn the_number_of_a_job_is_a_number_in_paths() {
    let document: Value = serde_json::from_str(&openapi()).unwrap();
    let kind = |path: &str, index: usize| {
        document["paths"][path]["get"]["parameters"][index]["schema"]["type"].clone()
    };
    assert_eq!(kind("/v1/jobs/{job}", 0), "integer");
    assert_eq!(kind("/v1/pools/{pool}/spaces/{space}", 1), "string");
}
