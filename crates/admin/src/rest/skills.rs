//! REST handlers of skills.

use api::{PutSkill, Skill, SkillDetails, SkillFilter};
use axum::{Json, extract::Path};

use super::{
    JsonResult,
    extract::{Authenticated, Body, Query},
    refusal::Refusals,
    settings::Expected,
};

/// List skills by name, without their contents
#[utoipa::path(
    get, path = "/api/v1/skills", tag = "skills", operation_id = "skills_list",
    params(SkillFilter),
    responses((status = 200, description = "OK", body = [Skill]), Refusals),
)]
pub(super) async fn list(
    Authenticated(admin, actor): Authenticated,
    Query(filter): Query<SkillFilter>,
) -> JsonResult<Vec<Skill>> {
    Ok(Json(admin.list_skills(&actor, &filter).await?))
}

/// Create a skill or change its texts, which are scanned first
#[utoipa::path(
    put, path = "/api/v1/skills", tag = "skills", operation_id = "skills_put",
    request_body = PutSkill,
    responses((status = 200, description = "OK", body = Skill), Refusals),
)]
pub(super) async fn put(
    Authenticated(admin, actor): Authenticated,
    Body(new): Body<PutSkill>,
) -> JsonResult<Skill> {
    Ok(Json(admin.put_skill(&actor, new).await?))
}

/// Get a skill with its content
#[utoipa::path(
    get, path = "/api/v1/skills/{id}", tag = "skills", operation_id = "skills_get",
    params(("id" = String, Path)),
    responses((status = 200, description = "OK", body = SkillDetails), Refusals),
)]
pub(super) async fn get(
    Authenticated(admin, actor): Authenticated,
    Path(id): Path<String>,
) -> JsonResult<SkillDetails> {
    Ok(Json(admin.get_skill(&actor, &id).await?))
}

/// Delete a skill
#[utoipa::path(
    delete, path = "/api/v1/skills/{id}", tag = "skills", operation_id = "skills_delete",
    params(("id" = String, Path), Expected),
    responses((status = 200, description = "OK", body = Skill), Refusals),
)]
pub(super) async fn delete(
    Authenticated(admin, actor): Authenticated,
    Path(id): Path<String>,
    Query(expected): Query<Expected>,
) -> JsonResult<Skill> {
    Ok(Json(admin.delete_skill(&actor, &id, expected.version).await?))
}
