//! The OpenAPI description of the API, made of the table of verbs and of the types of its documents.
//!
//! What OpenAPI has no word for stands in the extension `x-dolmen` of each operation: `role`, `idempotent` (the same request a second
//! time succeeds and changes nothing), `job` (it may start or end a job) and `error_codes`.

use serde::Serialize;
use utoipa::openapi::extensions::ExtensionsBuilder;
use utoipa::openapi::path::{HttpMethod, OperationBuilder, ParameterBuilder, ParameterIn, PathsBuilder};
use utoipa::openapi::request_body::RequestBodyBuilder;
use utoipa::openapi::schema::{ComponentsBuilder, Schema};
use utoipa::openapi::{
    ContentBuilder, InfoBuilder, OpenApiBuilder, PathItem, Ref, RefOr, Required, ResponseBuilder,
    ResponsesBuilder,
};
use utoipa::{PartialSchema, ToSchema};

use crate::verb_declaration::is_nothing;
use crate::{
    Change, Declaration, ErrorCode, ErrorDocument, JobStart, Repeat, Verb, VerbKind, VerbVisitor, visit_verbs,
};

/// Path under which the daemon serves the description.
pub const OPENAPI_PATH: &str = "/v1/openapi.json";

/// Returns the description as JSON; empty where it cannot be written down, which a test rules out.
#[must_use]
pub fn openapi() -> String {
    let mut operations = Operations::default();
    visit_verbs(&mut operations);
    operations.document()
}

/// Operations and schemas of the verbs visited so far.
#[derive(Default)]
pub(crate) struct Operations {
    paths: PathsBuilder,
    schemas: Vec<(String, RefOr<Schema>)>,
}

impl Operations {
    pub(crate) fn document(mut self) -> String {
        self.add_schema::<ErrorDocument>();
        let info = InfoBuilder::new()
            .title("Dolmen")
            .version(env!("CARGO_PKG_VERSION"))
            .description(Some("Pools, disks and spaces of this host. JSON over HTTP/1.1 on a Unix socket."))
            .build();
        let components = ComponentsBuilder::new().schemas_from_iter(self.schemas).build();
        let document =
            OpenApiBuilder::new().info(info).paths(self.paths.build()).components(Some(components));
        document.build().to_pretty_json().unwrap_or_default()
    }

    fn add_schema<T: ToSchema>(&mut self) {
        self.schemas.push((T::name().into_owned(), T::schema()));
        T::schemas(&mut self.schemas);
    }

    fn add<V: Verb>(&mut self, operation: OperationBuilder) {
        let declaration = &V::DECLARATION;
        self.add_schema::<V::Answer>();
        let method = match declaration.kind {
            VerbKind::Question => HttpMethod::Get,
            VerbKind::Change => HttpMethod::Post,
        };
        let operation = described(declaration, operation).responses(
            ResponsesBuilder::new()
                .response(
                    "200",
                    ResponseBuilder::new().description("The answer").content(JSON, content::<V::Answer>()),
                )
                .response(
                    "default",
                    ResponseBuilder::new()
                        .description(refusals(declaration))
                        .content(JSON, content::<ErrorDocument>()),
                )
                .build(),
        );
        let paths = std::mem::take(&mut self.paths);
        self.paths = paths.path(declaration.route(), PathItem::new(method, operation.build()));
    }
}

const JSON: &str = "application/json";
/// The parameter of paths that is a number; all others are names.
const JOB: &str = "job";

/// Facts of a verb that OpenAPI has no word for. One extension holds them, in alphabetical order, so that the document is the same
/// each time.
#[derive(Serialize)]
struct Facts {
    error_codes: Vec<&'static str>,
    idempotent: bool,
    job: bool,
    role: &'static str,
}

impl VerbVisitor for Operations {
    fn question<V: Verb>(&mut self) {
        let mut operation = OperationBuilder::new();
        if !is_nothing(&V::DECLARATION)
            && let RefOr::T(Schema::Object(query)) = V::Request::schema()
        {
            for (name, schema) in query.properties {
                let parameter = ParameterBuilder::new().name(name).parameter_in(ParameterIn::Query);
                operation = operation.parameter(parameter.required(Required::False).schema(Some(schema)));
            }
        }
        self.add::<V>(operation);
    }

    fn change<V: Verb<Answer = Change>>(&mut self) {
        self.add_schema::<V::Request>();
        // A body may be left out where every field has a default.
        let body = RequestBodyBuilder::new().content(JSON, content::<V::Request>());
        let can_be_empty = crate::read_request::<V::Request>(b"").is_ok();
        let required = if can_be_empty { Required::False } else { Required::True };
        self.add::<V>(OperationBuilder::new().request_body(Some(body.required(Some(required)).build())));
    }
}

/// Adds what the declaration says of a verb.
fn described(declaration: &Declaration, mut operation: OperationBuilder) -> OperationBuilder {
    for parameter in declaration.parameters {
        let schema = if *parameter == JOB { u64::schema() } else { String::schema() };
        let parameter = ParameterBuilder::new().name(*parameter).parameter_in(ParameterIn::Path);
        operation = operation.parameter(parameter.required(Required::True).schema(Some(schema)));
    }
    let facts = Facts {
        error_codes: words_of(&declaration.errors()),
        idempotent: declaration.kind == VerbKind::Question || declaration.repeat == Repeat::Same,
        job: declaration.job == JobStart::Maybe,
        role: declaration.role.word(),
    };
    let extensions =
        ExtensionsBuilder::new().add("x-dolmen", serde_json::to_value(facts).unwrap_or_default());
    operation
        .operation_id(Some(declaration.name))
        .summary(Some(declaration.help))
        .extensions(Some(extensions.build()))
}

fn refusals(declaration: &Declaration) -> String {
    format!("A refusal: {}", words_of(&declaration.errors()).join(", "))
}

fn words_of(errors: &[ErrorCode]) -> Vec<&'static str> {
    errors.iter().map(|code| code.word()).collect()
}

fn content<T: ToSchema>() -> utoipa::openapi::Content {
    ContentBuilder::new().schema(Some(Ref::from_schema_name(T::name()))).build()
}
