use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::Value;
use subjects::audit::{Head, Row};
use utoipa::{
    Modify, OpenApi, PartialSchema, ToSchema,
    openapi::{
        ObjectBuilder, RefOr,
        schema::Schema,
        security::{HttpAuthScheme, HttpBuilder, SecurityScheme},
    },
};

use super::refusal::{ErrorBody, ErrorDetails};
use crate::admin::operations::Work;

/// The part of the document that no single operation says.
pub(super) fn base() -> utoipa::openapi::OpenApi {
    Document::openapi()
}

#[derive(OpenApi)]
#[openapi(
    info(
        title = "cynode-gateway administration",
        description = "Who may call which tool, which servers are behind the gateway, and what happened.\n\n\
                       Every request brings the token of an administrator or a user. Every change is in the audit before it \
                       is answered."
    ),
    components(schemas(ErrorBody, ErrorDetails)),
    modifiers(&Bearer),
    security(("bearer" = [])),
    tags(
        (name = "tools", description = "Tools: enable, disable, scope and approve."),
        (name = "tokens", description = "Issue, list and revoke tokens."),
        (name = "upstreams", description = "Upstream MCP servers."),
        (name = "rules", description = "Access rules."),
        (name = "settings", description = "System settings."),
        (name = "catalogues", description = "Catalogues: images, models, nodes, personas, skills."),
        (name = "audit", description = "Audit log."),
        (name = "work", description = "Handoffs: queued, in progress, answered and dead-lettered. Requires nats.url."),
    )
)]
struct Document;

struct Bearer;

impl Modify for Bearer {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let scheme = SecurityScheme::Http(HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build());
        document.components.get_or_insert_default().add_security_scheme("bearer", scheme);
    }
}

/// A row of the audit, as the contract has it.
pub(super) struct AuditRow;

impl PartialSchema for AuditRow {
    fn schema() -> RefOr<Schema> {
        from_contract::<Row>()
    }
}

impl ToSchema for AuditRow {}

/// A signed head of the audit, as the contract has it.
pub(super) struct AuditHead;

impl PartialSchema for AuditHead {
    fn schema() -> RefOr<Schema> {
        from_contract::<Head>()
    }
}

impl ToSchema for AuditHead {}

/// How the work on handoffs is going.
pub(super) struct WorkNow;

impl PartialSchema for WorkNow {
    fn schema() -> RefOr<Schema> {
        from_contract::<Work>()
    }
}

impl ToSchema for WorkNow {}

/// Signed heads of the audit, and who signed them.
#[derive(ToSchema)]
#[expect(dead_code, reason = "the document is made of its fields")]
pub(super) struct AuditHeads {
    /// The public key of whoever signed.
    key: String,
    heads: Vec<AuditHead>,
}

fn from_contract<T: JsonSchema>() -> RefOr<Schema> {
    // In one piece: references would lead to places that the document does not have.
    let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    let schema = Value::from(settings.into_generator().into_root_schema_for::<T>());
    let read = serde_json::from_value::<Schema>(schema);
    RefOr::T(read.unwrap_or_else(|_| Schema::Object(ObjectBuilder::new().build())))
}
