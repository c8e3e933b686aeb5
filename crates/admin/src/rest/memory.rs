//! REST handlers of memories.

use api::{
    ChangedMemories, FoundMemory, MemoryAddress, MemoryChanges, MemoryContent, MemoryFilter,
    MemoryProfileSize, MemorySearch, MemorySource,
};
use axum::{Json, extract::Path};

use super::{
    JsonResult,
    extract::{Authenticated, Body, Query},
    refusal::Refusals,
};

/// List the memory profiles that hold something, with how much
#[utoipa::path(
    get, path = "/api/v1/memory", tag = "memory", operation_id = "memory_profiles",
    responses((status = 200, description = "OK", body = [MemoryProfileSize]), Refusals),
)]
pub(super) async fn profiles(
    Authenticated(admin, actor): Authenticated,
) -> JsonResult<Vec<MemoryProfileSize>> {
    Ok(Json(admin.list_memory_profiles(&actor).await?))
}

/// List the texts of a memory profile by path, without their contents
#[utoipa::path(
    get, path = "/api/v1/memory/{profile}", tag = "memory", operation_id = "memory_list",
    params(("profile" = String, Path), MemoryFilter),
    responses((status = 200, description = "OK", body = [MemorySource]), Refusals),
)]
pub(super) async fn list(
    Authenticated(admin, actor): Authenticated,
    Path(profile): Path<String>,
    Query(filter): Query<MemoryFilter>,
) -> JsonResult<Vec<MemorySource>> {
    Ok(Json(admin.list_memories(&actor, &profile, &filter).await?))
}

/// Keep, replace and delete texts of a memory profile: all of the changes, or none
#[utoipa::path(
    post, path = "/api/v1/memory/{profile}", tag = "memory", operation_id = "memory_change",
    params(("profile" = String, Path)),
    request_body = MemoryChanges,
    responses((status = 200, description = "OK", body = ChangedMemories), Refusals),
)]
pub(super) async fn change(
    Authenticated(admin, actor): Authenticated,
    Path(profile): Path<String>,
    Body(changes): Body<MemoryChanges>,
) -> JsonResult<ChangedMemories> {
    Ok(Json(admin.change_memories(&actor, &profile, changes).await?))
}

/// Get a text of a memory profile, 16 KiB at a time
#[utoipa::path(
    get, path = "/api/v1/memory/{profile}/text", tag = "memory", operation_id = "memory_get",
    params(("profile" = String, Path), MemoryAddress),
    responses((status = 200, description = "OK", body = MemoryContent), Refusals),
)]
pub(super) async fn get(
    Authenticated(admin, actor): Authenticated,
    Path(profile): Path<String>,
    Query(at): Query<MemoryAddress>,
) -> JsonResult<MemoryContent> {
    Ok(Json(admin.get_memory(&actor, &profile, &at).await?))
}

/// Search the texts of a memory profile, best first
#[utoipa::path(
    get, path = "/api/v1/memory/{profile}/search", tag = "memory", operation_id = "memory_search",
    params(("profile" = String, Path), MemorySearch),
    responses((status = 200, description = "OK", body = [FoundMemory]), Refusals),
)]
pub(super) async fn search(
    Authenticated(admin, actor): Authenticated,
    Path(profile): Path<String>,
    Query(wanted): Query<MemorySearch>,
) -> JsonResult<Vec<FoundMemory>> {
    Ok(Json(admin.search_memories(&actor, &profile, &wanted).await?))
}
