//! `skills.list` and `skills.get`: find and load skills.

use contract::{Page, artifact::Encoding, tool};
use schemars::JsonSchema;
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, QueryOrder, QuerySelect};
use serde::{Deserialize, Serialize};
use subjects::ScopeId;

use super::{MAX_NAME_BYTES, Skill, SkillScope, in_scopes, within};
use store::entity::skill;

use crate::{
    BuiltInTool, Context, Does, ToolError,
    arguments::{check, slice::slice},
    confinement::Confinement,
    queries::{page::PageRequest, search},
};

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct List {
    /// Skills of the system and of this user.
    user_id: Option<ScopeId>,
    /// Skills of the system and of this project.
    project_id: Option<ScopeId>,
    /// Only skills with this text in their name or description.
    #[schemars(length(max = 200))]
    text: Option<String>,
    limit: Option<u64>,
    cursor: Option<String>,
}

tool!("skills.list": List => Page<Skill>);

impl BuiltInTool for List {
    const TITLE: &'static str = "List skills";
    const DESCRIPTION: &'static str = "Lists skills by name, without their contents; skills.get has those.";
    const DOES: Does = Does::Read;

    async fn run(context: &Context<'_>, input: Self) -> Result<Page<Skill>, ToolError> {
        let request = PageRequest::new(input.limit, input.cursor.as_deref())?;
        let mut query = skill::Entity::find();
        let (user, project) = (input.user_id.as_ref(), input.project_id.as_ref());
        if let Some(confinement) = Confinement::of(context).await? {
            query = query.filter(within(&confinement, project));
        } else if user.is_some() || project.is_some() {
            query = query.filter(in_scopes(user.map(ScopeId::as_str), project.map(ScopeId::as_str)));
        }
        let columns = [skill::Column::Name, skill::Column::Description];
        if let Some(containing) = search::containing(input.text.as_deref(), &columns)? {
            query = query.filter(containing);
        }
        let ordered = query
            .order_by_asc(skill::Column::Name)
            .order_by_asc(skill::Column::ScopeType)
            .order_by_asc(skill::Column::ScopeId);
        let found = ordered.offset(request.offset).limit(request.fetch_limit()).all(&context.db).await?;
        Ok(request.build_page(found.into_iter().map(Skill::try_from).collect::<Result<_, _>>()?))
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Get {
    /// Either this or `name`.
    skill_id: Option<ScopeId>,
    /// The skill of this name: of the project, else of the user, else of the system.
    #[schemars(length(max = MAX_NAME_BYTES))]
    name: Option<String>,
    user_id: Option<ScopeId>,
    project_id: Option<ScopeId>,
    /// Where to begin, in bytes.
    offset: Option<u64>,
    /// How many bytes: 16384 when not given, 65536 at most.
    limit: Option<u64>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct GetOutput {
    #[serde(flatten)]
    skill: Skill,
    content: String,
    offset: usize,
    /// There is more: read on from `next_offset`.
    truncated: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_offset: Option<usize>,
}

tool!("skills.get": Get => GetOutput);

impl BuiltInTool for Get {
    const TITLE: &'static str = "Load a skill";
    const DESCRIPTION: &'static str = "Gives a skill with its content, by skill_id or name, whole or in \
        pieces. `truncated` says that there is more.";
    const DOES: Does = Does::Read;

    async fn run(context: &Context<'_>, input: Self) -> Result<GetOutput, ToolError> {
        let confinement = Confinement::of(context).await?;
        let mut query = skill::Entity::find();
        let what = match (&input.skill_id, &input.name) {
            (Some(id), _) => {
                query = query.filter(skill::Column::Id.eq(id.as_str()));
                id.to_string()
            }
            (None, Some(name)) => {
                check::non_blank("name", name, MAX_NAME_BYTES)?;
                // The query of a confined caller is restricted below, whatever user and project it names.
                if confinement.is_none() {
                    let (user, project) = (input.user_id.as_ref(), input.project_id.as_ref());
                    query = query.filter(in_scopes(user.map(ScopeId::as_str), project.map(ScopeId::as_str)));
                }
                query = query.filter(skill::Column::Name.eq(name));
                name.clone()
            }
            (None, None) => return Err(ToolError::Invalid("name the skill by skill_id or name".to_owned())),
        };
        if let Some(confinement) = &confinement {
            query = query.filter(within(confinement, input.project_id.as_ref()));
        }
        let found = query.all(&context.db).await?;
        let scope = |row: &skill::Model| check::parse_stored::<SkillScope>("scope", &row.scope_type).ok();
        let row = found.into_iter().max_by_key(scope);
        let row = row.ok_or_else(|| ToolError::not_found("skill", what))?;
        let piece = slice(row.content.as_bytes(), input.offset, input.limit, Some(Encoding::Text))?;
        Ok(GetOutput {
            skill: row.try_into()?,
            content: piece.content,
            offset: piece.offset,
            truncated: piece.next.is_some(),
            next_offset: piece.next,
        })
    }
}
