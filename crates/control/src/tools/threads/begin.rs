//! `thread.turn.begin`: stores a request as the next turn of its thread, or finds the turn that it repeats.
//!
//! Several gateways may run this at the same time. The requests of an API key wait for each other, and so do
//! the turns of a thread.

use contract::{
    key::{BY_CONSOLE, Key},
    lease::Issue,
    thread::{
        BeginOutcome, BeginTurn, BegunTurn, JOIN_DELIVERED_WINDOW_SECONDS, JOIN_WINDOW_SECONDS,
        MAX_REQUEST_KEY_BYTES, MAX_WAIT_ID_BYTES, TurnOptions,
    },
};
use policy::{AgentKind, Scope};
use sea_orm::{
    ActiveValue::{Set, Unchanged},
    ColumnTrait, Condition, EntityTrait, PaginatorTrait, QueryFilter, QueryOrder, QuerySelect, Select,
};
use subjects::{ChatMessage, HandoffId};

use super::{
    cancel, end,
    history::History,
    into_turn, messages, messages_of, named_id, new_id, parse, requests,
    resolve::{Target, resolve},
    waits::Waits,
};
use crate::{BuiltInTool, Context, Does, NewLease, ToolError, arguments::check, tools::keys};
use store::{
    clock,
    entity::{thread, token, turn},
};

const MAX_KEY_ID_BYTES: usize = 128;
/// What turns have in the place of a key of the console, which replaces its keys every few minutes: all of a
/// user are one client.
const CONSOLE_KEY: &str = "console";
/// How much the clocks of orchestrators and gateways may differ.
const CLOCK_TOLERANCE_US: i64 = 2_000_000;

impl BuiltInTool for BeginTurn {
    const TITLE: &'static str = "Begin a turn";
    const DESCRIPTION: &'static str = "Stores a request of a user as the next turn of a thread and issues \
        the lease for its handoff, or finds the turn that the request repeats.";
    const DOES: Does = Does::Write;
    const SCOPE: Scope = Scope::Pm;
    const HAS_TEXT: bool = false;

    async fn run(context: &Context<'_>, mut input: Self) -> Result<BegunTurn, ToolError> {
        check_input(&input)?;
        let messages = messages::checked(std::mem::take(&mut input.messages))?;
        input.key_id = lock_key(context, &input).await?;
        if let Some(found) = find_repeated(context, &input).await? {
            return repeated(context, &input, found).await;
        }
        if let Some(open) = find_too_many(context, &input).await? {
            return Ok(BegunTurn { outcome: BeginOutcome::TooManyOpen, turn: into_turn(open)?, lease: None });
        }
        let handoff_id = HandoffId::now();
        let new = new_thread(context, &input, handoff_id, &messages);
        let target = resolve(context, &input, &messages, new).await?;
        if let Some((outcome, other)) = find_in_the_way(context, &input, &target).await? {
            // The request that this one repeats may have begun while this one waited for the thread.
            return match find_by_name(context, &input).await? {
                Some(found) => repeated(context, &input, found).await,
                None => Ok(BegunTurn { outcome, turn: into_turn(other)?, lease: None }),
            };
        }
        let (row, history_hash) = new_turn(context, &input, handoff_id, target.thread(), messages).await?;
        let insert = turn::Entity::insert(turn::ActiveModel::from(row.clone())).on_conflict_do_nothing_on([
            turn::Column::KeyId,
            turn::Column::UserId,
            turn::Column::RequestKey,
        ]);
        if !check::was_inserted(&insert.exec_without_returning(&context.db).await?) {
            if let Target::Created(thread) = &target {
                thread::Entity::delete_by_id(&thread.id).exec(&context.db).await?;
            }
            let found = find_by_name(context, &input).await?;
            let again = || ToolError::Conflict("the request was deleted meanwhile; try again".to_owned());
            return repeated(context, &input, found.ok_or_else(again)?).await;
        }
        if let Target::Existing(thread) = &target {
            append_turn(context, thread, handoff_id, history_hash).await?;
        }
        let lease = Some(issue_lease(context, &row).await?);
        Ok(BegunTurn { outcome: BeginOutcome::Begun, turn: into_turn(row)?, lease })
    }
}

fn check_input(input: &BeginTurn) -> Result<(), ToolError> {
    keys::check_hash("body_hash", &input.body_hash)?;
    check::non_blank("key_id", &input.key_id, MAX_KEY_ID_BYTES)?;
    if let Some(wait) = &input.wait_id {
        check::non_blank("wait_id", wait, MAX_WAIT_ID_BYTES)?;
    }
    if input.follows.is_some() && input.thread.is_none() {
        return Err(ToolError::Invalid("`follows` needs the `thread` of that turn".to_owned()));
    }
    if input.in_new_thread && input.thread.is_some() {
        return Err(ToolError::Invalid("a request `in_new_thread` names no `thread`".to_owned()));
    }
    match &input.request_key {
        Some(name) => check::non_blank("request_key", name, MAX_REQUEST_KEY_BYTES),
        None => Ok(()),
    }
}

/// Locks the API key of a request, and returns what its turns have as key. Fails if it is not valid for the
/// user.
///
/// A request waits for all others with the same key that are being stored: the one that it repeats may be
/// among them, and all of them count as open.
async fn lock_key(context: &Context<'_>, input: &BeginTurn) -> Result<String, ToolError> {
    let row = token::Entity::find_by_id(&input.key_id).lock_exclusive().one(&context.db).await?;
    let is_of_console = row.as_ref().is_some_and(|row| row.created_by.starts_with(BY_CONSOLE));
    let key = row.and_then(|row| keys::into_key(row, context.now));
    let is_permitted = |key: &Key| key.is_front_end || key.user_id == input.user_id.as_str();
    match key {
        Some(key) if !is_permitted(&key) => {
            Err(ToolError::Invalid("the API key is another user's".to_owned()))
        }
        Some(_) if is_of_console => Ok(CONSOLE_KEY.to_owned()),
        Some(key) => Ok(key.key_id),
        None => Err(ToolError::not_found("API key", &input.key_id)),
    }
}

/// Returns the turn that a request repeats, or that its own retry has begun.
async fn find_repeated(context: &Context<'_>, input: &BeginTurn) -> Result<Option<turn::Model>, ToolError> {
    if let Some(found) = find_by_name(context, input).await? {
        return Ok(Some(found));
    }
    let before =
        |seconds: u64| context.now.saturating_sub(i64::try_from(seconds * 1_000_000).unwrap_or(i64::MAX));
    // Work may take longer than the window: retries join it until it has ended, and for a while after that.
    let is_open = Condition::all()
        .add(turn::Column::State.is_null())
        .add(turn::Column::CreatedAt.gt(super::answerable_since(context)));
    let can_be_joined = Condition::any()
        .add(is_open)
        .add(turn::Column::CreatedAt.gt(before(JOIN_WINDOW_SECONDS)))
        .add(turn::Column::EndedAt.gt(before(JOIN_WINDOW_SECONDS)));
    let mut query = of_key(input)
        .filter(turn::Column::BodyHash.eq(&input.body_hash))
        .filter(can_be_joined)
        .order_by_desc(turn::Column::CreatedAt);
    if let Some(reference) = &input.thread {
        let ids = [reference.clone(), named_id(input.user_id.as_str(), reference)];
        query = query.filter(turn::Column::ThreadId.is_in(ids));
    }
    match (&input.request_key, &input.received_at) {
        (None, _) if input.is_retry => {
            let last = query.one(&context.db).await?;
            // If the client has that answer, the request that this one repeats was not stored.
            let has_answer = |turn: &turn::Model| {
                turn.delivered_at.is_some_and(|at| at < before(JOIN_DELIVERED_WINDOW_SECONDS))
            };
            Ok(last.filter(|turn| !has_answer(turn)))
        }
        // A gateway may stand still with a request while its client repeats it elsewhere.
        (_, Some(received_at)) => {
            let since = clock::micros(received_at.at()).saturating_sub(CLOCK_TOLERANCE_US);
            let by_retries = query.filter(turn::Column::RequestKey.is_null());
            Ok(by_retries.filter(turn::Column::CreatedAt.gt(since)).one(&context.db).await?)
        }
        _ => Ok(None),
    }
}

/// Returns the turn of the request with the same name.
async fn find_by_name(context: &Context<'_>, input: &BeginTurn) -> Result<Option<turn::Model>, ToolError> {
    let Some(name) = &input.request_key else { return Ok(None) };
    Ok(of_key(input).filter(turn::Column::RequestKey.eq(name)).one(&context.db).await?)
}

/// Returns the oldest open turn of the API key if no more may be open.
async fn find_too_many(context: &Context<'_>, input: &BeginTurn) -> Result<Option<turn::Model>, ToolError> {
    let Some(max) = input.max_open else { return Ok(None) };
    let of_user = (input.key_id == CONSOLE_KEY).then(|| turn::Column::UserId.eq(input.user_id.as_str()));
    let open = turn::Entity::find()
        .filter(turn::Column::KeyId.eq(&input.key_id))
        .filter(Condition::all().add_option(of_user))
        .filter(turn::Column::State.is_null())
        .filter(turn::Column::CreatedAt.gt(super::answerable_since(context)));
    if open.clone().count(&context.db).await? < max {
        return Ok(None);
    }
    Ok(open.order_by_asc(turn::Column::CreatedAt).one(&context.db).await?)
}

fn of_key(input: &BeginTurn) -> Select<turn::Entity> {
    turn::Entity::find()
        .filter(turn::Column::KeyId.eq(&input.key_id))
        .filter(turn::Column::UserId.eq(input.user_id.as_str()))
}

/// Answers a request with the turn that it repeats.
async fn repeated(
    context: &Context<'_>,
    input: &BeginTurn,
    found: turn::Model,
) -> Result<BegunTurn, ToolError> {
    if found.body_hash != input.body_hash {
        return Ok(BegunTurn { outcome: BeginOutcome::KeyReused, turn: into_turn(found)?, lease: None });
    }
    let (turn, lease) = match found.state {
        Some(_) => (found, None),
        None => {
            requests::join(context, &found.id, input.wait_id.as_deref()).await?;
            joined(context, found).await?
        }
    };
    Ok(BegunTurn { outcome: BeginOutcome::Joined, turn: into_turn(turn)?, lease })
}

/// Returns an open turn that a request joined, with a lease for its handoff. There is none if the turn is
/// cancelled or may not be worked on; one that was not published ends with that.
async fn joined(
    context: &Context<'_>,
    found: turn::Model,
) -> Result<(turn::Model, Option<String>), ToolError> {
    if cancel::is_cancelled(context, &found.id).await? {
        if found.sent_at.is_none() {
            cancel::end_unsent(context, &found).await?;
            let ended = turn::Entity::find_by_id(&found.id).one(&context.db).await?;
            return Ok((ended.unwrap_or(found), None));
        }
        return Ok((found, None));
    }
    match issue_lease(context, &found).await {
        Ok(lease) => Ok((found, Some(lease))),
        Err(ToolError::Store(error)) => Err(ToolError::Store(error)),
        Err(_) if found.sent_at.is_some() => Ok((found, None)),
        Err(why) => {
            end::end_as_refused(context, &found, &why).await?;
            let ended = turn::Entity::find_by_id(&found.id).one(&context.db).await?;
            Ok((ended.unwrap_or(found), None))
        }
    }
}

/// Returns the turn because of which a request cannot be the next one of its locked thread, and why: the last
/// one, if the request follows another, or an open one.
async fn find_in_the_way(
    context: &Context<'_>,
    input: &BeginTurn,
    target: &Target,
) -> Result<Option<(BeginOutcome, turn::Model)>, ToolError> {
    let gone = || {
        let why = "the turn that the request follows was deleted meanwhile; try again";
        ToolError::Conflict(why.to_owned())
    };
    let thread = match target {
        Target::Existing(thread) => thread,
        Target::Created(_) if input.follows.is_some() => return Err(gone()),
        Target::Created(_) => return Ok(None),
    };
    if let Some(follows) = input.follows {
        let last = last_turn(context, thread).await?.ok_or_else(gone)?;
        if last.id != follows.to_string() {
            return Ok(Some((BeginOutcome::Moved, last)));
        }
    }
    Ok(open_turn(context, thread).await?.map(|open| (BeginOutcome::Busy, open)))
}

/// Returns the open turn of a locked thread. One that cannot be answered any more is ended.
async fn open_turn(context: &Context<'_>, thread: &thread::Model) -> Result<Option<turn::Model>, ToolError> {
    let Some(id) = &thread.open_turn else { return Ok(None) };
    let open = turn::Entity::find_by_id(id).one(&context.db).await?.filter(|open| open.state.is_none());
    match open {
        Some(open) if open.created_at < super::answerable_since(context) => {
            end::end_as_stale(context, thread, &open.id).await?;
            Ok(None)
        }
        open => Ok(open),
    }
}

/// Returns the row of a new thread without a name, with the request as its first turn.
fn new_thread(
    context: &Context<'_>,
    input: &BeginTurn,
    handoff_id: HandoffId,
    messages: &[ChatMessage],
) -> thread::Model {
    thread::Model {
        id: new_id(),
        user_id: input.user_id.to_string(),
        name: None,
        title: messages::title(messages),
        turn_count: 1,
        open_turn: Some(handoff_id.to_string()),
        open_question: None,
        history_hash: messages::history_hash(messages),
        created_at: context.now,
        updated_at: context.now,
    }
}

/// Returns the row of a new turn, and the hash of the history of its thread from then on.
async fn new_turn(
    context: &Context<'_>,
    input: &BeginTurn,
    handoff_id: HandoffId,
    thread: &thread::Model,
    mut messages: Vec<ChatMessage>,
) -> Result<(turn::Model, String), ToolError> {
    // A thread that was just created counts this turn already.
    let is_first = thread.open_turn.as_deref() == Some(&*handoff_id.to_string());
    let mut instructions = Vec::new();
    let count_of_new = if is_first {
        messages.len()
    } else if messages::count_of_user(&messages) == 1 {
        let history = History::read(context, thread).await?;
        instructions = history.new_instructions(&messages);
        messages = history.put_before(messages);
        1
    } else {
        // A request that repeats all that was said repeats the instructions, too.
        let repeats_all = messages::hash_before_last(&messages).as_ref() == Some(&thread.history_hash);
        if !repeats_all && messages.iter().any(messages::is_system) {
            instructions = History::read(context, thread).await?.new_instructions(&messages);
        }
        messages::count_of_new(&messages, &last_messages(context, thread).await?)
    };
    let history_hash = messages::history_hash(&messages);
    let said = messages.split_off(messages.len() - count_of_new);
    let new: Vec<ChatMessage> = instructions.into_iter().chain(said).collect();
    let row = turn::Model {
        id: handoff_id.to_string(),
        thread_id: thread.id.clone(),
        user_id: thread.user_id.clone(),
        key_id: input.key_id.clone(),
        position: if is_first { 0 } else { thread.turn_count },
        continues: thread.open_question.clone(),
        request_key: input.request_key.clone(),
        body_hash: input.body_hash.clone(),
        context: (!messages.is_empty()).then(|| subjects::encode_json_text(&messages)),
        messages: subjects::encode_json_text(&new),
        options: subjects::encode_json_text(&input.options),
        state: None,
        answer: None,
        created_at: context.now,
        unsent_since: Some(context.now),
        sent_at: None,
        ended_at: None,
        delivered_at: None,
        waiting: i64::from(input.wait_id.is_none()),
        wait_ids: input.wait_id.as_deref().map(Waits::json_of_one),
    };
    Ok((row, history_hash))
}

/// Returns the messages that were new in the last turn of a thread.
async fn last_messages(context: &Context<'_>, thread: &thread::Model) -> Result<Vec<ChatMessage>, ToolError> {
    last_turn(context, thread).await?.as_ref().map_or(Ok(Vec::new()), messages_of)
}

async fn last_turn(context: &Context<'_>, thread: &thread::Model) -> Result<Option<turn::Model>, ToolError> {
    let last = turn::Entity::find()
        .filter(turn::Column::ThreadId.eq(&thread.id))
        .filter(turn::Column::Position.eq(thread.turn_count - 1));
    Ok(last.one(&context.db).await?)
}

/// Makes a new turn the last of a thread.
async fn append_turn(
    context: &Context<'_>,
    thread: &thread::Model,
    handoff_id: HandoffId,
    history_hash: String,
) -> Result<(), ToolError> {
    let change = thread::ActiveModel {
        id: Unchanged(thread.id.clone()),
        turn_count: Set(thread.turn_count + 1),
        open_turn: Set(Some(handoff_id.to_string())),
        open_question: Set(None),
        history_hash: Set(history_hash),
        updated_at: Set(context.now),
        ..Default::default()
    };
    thread::Entity::update_many()
        .set(change)
        .filter(thread::Column::Id.eq(&thread.id))
        .exec(&context.db)
        .await?;
    Ok(())
}

/// Issues the lease under which a manager works on a turn, or finds the one that was issued for it before.
/// Returns its signed text.
pub(super) async fn issue_lease(context: &Context<'_>, turn: &turn::Model) -> Result<String, ToolError> {
    let options: TurnOptions = parse("the options of a turn", &turn.options)?;
    let id = |text: &str| text.parse().map_err(|_| ToolError::Invalid(format!("`{text}` is not an id")));
    let lease = Issue {
        project_id: options.project_id,
        handoff_id: Some(id(&turn.id)?),
        ..Issue::new(AgentKind::ProjectManager, Some(id(&turn.user_id)?))
    };
    let new = NewLease { lease, parent_id: None, issued_by: context.author() };
    Ok(context.leases.issue_for_handoff(&context.db, new).await?.lease)
}
