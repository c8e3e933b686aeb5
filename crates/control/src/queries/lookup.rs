//! Finds a row by its id or its name.

use sea_orm::{ColumnTrait, EntityTrait, PrimaryKeyTrait, QueryFilter};

use crate::{Context, ToolError, arguments::check};

pub(crate) const MAX_REFERENCE_BYTES: usize = 128;

/// Returns the row with this id or, if there is none, the one with this name. `field` is the argument that
/// holds the reference, `what` the kind of row in errors.
pub(crate) async fn by_id_or_name<E>(
    context: &Context<'_>,
    what: &'static str,
    field: &'static str,
    name: E::Column,
    reference: String,
) -> Result<E::Model, ToolError>
where
    E: EntityTrait<PrimaryKey: PrimaryKeyTrait<ValueType = String>>,
{
    check::non_blank(field, &reference, MAX_REFERENCE_BYTES)?;
    let found = match E::find_by_id(reference.clone()).one(&context.db).await? {
        Some(found) => Some(found),
        None => E::find().filter(name.eq(&reference)).one(&context.db).await?,
    };
    found.ok_or_else(|| ToolError::not_found(what, reference))
}
