//! The OpenAPI document: general information, security scheme, and schemas taken from the wire contract.

use api::{ErrorBody, ErrorDetails};
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

use crate::operations::Work;

/// Returns the document without its operations, which the router adds.
pub(super) fn base() -> utoipa::openapi::OpenApi {
    Document::openapi()
}

#[derive(OpenApi)]
#[openapi(
    info(
        title = "cynode-gateway administration",
        description = "Administration of tools, access rules, upstream servers and the audit log.\n\n\
                       Every request needs the token of an administrator or a user. Every change is recorded \
                       in the audit log before the response is sent."
    ),
    components(schemas(ErrorBody, ErrorDetails)),
    modifiers(&Bearer),
    security(("bearer" = [])),
    tags(
        (name = "tools", description = "Tools: enable, disable, scope and approve."),
        (name = "tokens", description = "Issue, list and revoke tokens."),
        (name = "leases", description = "Leases: on whose behalf agents act."),
        (name = "outbox", description = "Messages that wait to be published on NATS."),
        (name = "egress", description = "External providers: usage by user, provider and day."),
        (name = "upstreams", description = "Upstream MCP servers."),
        (name = "rules", description = "Access rules."),
        (name = "settings", description = "System settings."),
        (name = "schedules", description = "Schedules: work that is due at certain times."),
        (name = "skills", description = "Skills: instructions that agents load when they need them."),
        (name = "memory", description = "Memories: texts that agents search, by memory profile."),
        (name = "tasks", description = "Tasks: what managers work on. Agents create and change them."),
        (name = "workflows", description = "Workflows: they drive tasks to completion. Requires nats.url."),
        (name = "nodes", description = "Nodes: the machines that run jobs. They report themselves."),
        (name = "jobs", description = "Jobs: what nodes run in sandboxes."),
        (name = "catalogues", description = "Catalogues: projects, personas, models."),
        (name = "audit", description = "Audit log."),
        (
            name = "work",
            description = "Handoffs: queued, in progress, answered and dead-lettered. Requires nats.url."
        ),
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

/// Placeholder for an audit row in the document; its schema is the one of the wire contract.
pub(super) struct AuditRow;

impl PartialSchema for AuditRow {
    fn schema() -> RefOr<Schema> {
        from_contract::<Row>()
    }
}

impl ToSchema for AuditRow {}

/// Placeholder for a signed head of the audit; its schema is the one of the wire contract.
pub(super) struct AuditHead;

impl PartialSchema for AuditHead {
    fn schema() -> RefOr<Schema> {
        from_contract::<Head>()
    }
}

impl ToSchema for AuditHead {}

/// Placeholder for [`Work`] in the document; its schema comes from schemars.
pub(super) struct WorkNow;

impl PartialSchema for WorkNow {
    fn schema() -> RefOr<Schema> {
        from_contract::<Work>()
    }
}

impl ToSchema for WorkNow {}

/// Signed heads of the audit, with the public key of the signer.
#[derive(ToSchema)]
#[expect(dead_code, reason = "only its schema is used")]
pub(super) struct AuditHeads {
    /// The public key of the signer.
    key: String,
    heads: Vec<AuditHead>,
}

fn from_contract<T: JsonSchema>() -> RefOr<Schema> {
    // Inlined: references would point to definitions that this document does not contain.
    let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    let schema = Value::from(settings.into_generator().into_root_schema_for::<T>());
    let read = serde_json::from_value::<Schema>(schema);
    RefOr::T(read.unwrap_or_else(|_| Schema::Object(ObjectBuilder::new().build())))
}
