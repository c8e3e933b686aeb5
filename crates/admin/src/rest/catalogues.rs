//! REST handlers of the catalogues: projects, personas, models.

use api::{Model, Persona, Project, PutModel, PutPersona, PutProject};
use axum::{Json, extract::Path};
use http::StatusCode;
use store::entity::{model, persona, project};

use super::{
    JsonResult,
    extract::{Authenticated, Body},
    refusal::{Refusal, Refusals},
};

/// Defines a module with the handlers of one catalogue. Its name and that of one entry are part of paths,
/// operation ids and summaries.
#[rustfmt::skip] // It indents attributes of several lines in a macro too far.
macro_rules! catalogue {
    ($all:ident, $one:ident, $Entry:ident, $Put:ident) => {
        pub(super) mod $all {
            use super::*;

            #[utoipa::path(
                get, path = concat!("/api/v1/", stringify!($all)), tag = "catalogues",
                operation_id = concat!("list_", stringify!($all)),
                summary = concat!("List ", stringify!($all)),
                responses((status = 200, description = "OK", body = [$Entry]), Refusals),
            )]
            pub(in super::super) async fn list(
                Authenticated(admin, actor): Authenticated,
            ) -> JsonResult<Vec<$Entry>> {
                Ok(Json(admin.list_entries::<$one::Entity>(&actor).await?))
            }

            #[utoipa::path(
                put, path = concat!("/api/v1/", stringify!($all), "/{id}"), tag = "catalogues",
                operation_id = concat!("put_", stringify!($one)),
                summary = concat!("Create or replace a ", stringify!($one)),
                params(("id" = String, Path)),
                request_body = $Put,
                responses((status = 200, description = "OK", body = $Entry), Refusals),
            )]
            pub(in super::super) async fn put(
                Authenticated(admin, actor): Authenticated,
                Path(id): Path<String>,
                Body(new): Body<$Put>,
            ) -> JsonResult<$Entry> {
                Ok(Json(admin.put_entry::<$one::Entity>(&actor, &id, new).await?))
            }

            #[utoipa::path(
                delete, path = concat!("/api/v1/", stringify!($all), "/{id}"), tag = "catalogues",
                operation_id = concat!("delete_", stringify!($one)),
                summary = concat!("Delete a ", stringify!($one)),
                params(("id" = String, Path)),
                responses((status = 204, description = "OK"), Refusals),
            )]
            pub(in super::super) async fn delete(
                Authenticated(admin, actor): Authenticated,
                Path(id): Path<String>,
            ) -> Result<StatusCode, Refusal> {
                admin.delete_entry::<$one::Entity>(&actor, &id).await?;
                Ok(StatusCode::NO_CONTENT)
            }
        }
    };
}

catalogue!(projects, project, Project, PutProject);
catalogue!(personas, persona, Persona, PutPersona);
catalogue!(models, model, Model, PutModel);
