//! The outbox: messages that are stored with the changes of a transaction and published after its commit.
//! What a tool starts this way is started exactly once, or not at all.

use std::collections::BTreeMap;

use sea_orm::{
    ActiveValue::{NotSet, Set},
    ColumnTrait, ConnectionTrait, DbErr, EntityTrait, FromQueryResult, QueryFilter, QueryOrder, QuerySelect,
    sea_query::{Alias, Expr, ExprTrait, Query},
};
use tokio::sync::Notify;

use crate::{Store, clock, entity::outbox};

/// The stream of a request, which no stream stores.
pub const NO_STREAM: &str = "";

/// A message to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewMessage {
    pub subject: String,
    /// A stream stores one message with this id, however often it is published.
    pub message_id: String,
    pub body: String,
    /// The stream that stores it; see [`NewMessage::request`].
    pub stream: &'static str,
    /// Messages with the same key are published one after the other; others in any order. The subject if
    /// absent.
    pub ordering: Option<String>,
    /// What must hold for it to be sent. If it does not, the message is dropped.
    pub only_if: Option<SendIf>,
    /// Headers besides those that every message has.
    pub headers: BTreeMap<String, String>,
}

/// A condition on the chain of a job under which its result is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendIf {
    /// No node has the job.
    Unclaimed,
    /// The job has no result.
    Unended,
}

impl SendIf {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unclaimed => "unclaimed",
            Self::Unended => "unended",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        [Self::Unclaimed, Self::Unended].into_iter().find(|condition| condition.as_str() == text)
    }
}

impl NewMessage {
    /// Returns a message that is ordered among those of its subject.
    pub fn new(stream: &'static str, subject: String, message_id: String, body: String) -> Self {
        let headers = BTreeMap::new();
        Self { subject, message_id, body, stream, ordering: None, only_if: None, headers }
    }

    /// Returns a request that no stream stores. It is repeated until a subscriber answers, or until it is
    /// too old to be of use.
    pub fn request(subject: String, message_id: String) -> Self {
        Self::new(NO_STREAM, subject, message_id, String::new())
    }
}

/// Takes messages of transactions, and wakes the relay that publishes them.
#[derive(Debug)]
pub struct Outbox {
    has_relay: bool,
    added: Notify,
}

impl Outbox {
    /// Without a relay, messages are dropped: no relay would ever publish them.
    pub fn new(has_relay: bool) -> Self {
        Self { has_relay, added: Notify::new() }
    }

    /// Adds a message to a transaction.
    pub async fn add(&self, db: &impl ConnectionTrait, message: NewMessage) -> Result<(), DbErr> {
        if !self.has_relay {
            return Ok(());
        }
        let headers = match message.headers.is_empty() {
            true => None,
            false => Some(encode(&message.headers)?),
        };
        let row = outbox::ActiveModel {
            id: NotSet,
            ordering: Set(message.ordering.unwrap_or_else(|| message.subject.clone())),
            subject: Set(message.subject),
            message_id: Set(message.message_id),
            body: Set(message.body),
            created_at: Set(clock::now()),
            stream: Set(message.stream.to_owned()),
            only_if: Set(message.only_if.map(|condition| condition.as_str().to_owned())),
            headers: Set(headers),
        };
        outbox::Entity::insert(row).exec_without_returning(db).await?;
        // The transaction is not committed yet: the relay looks several times.
        self.added.notify_one();
        Ok(())
    }

    /// Waits until a message is added.
    pub async fn added(&self) {
        self.added.notified().await;
    }
}

fn encode(headers: &BTreeMap<String, String>) -> Result<String, DbErr> {
    serde_json::to_string(headers).map_err(|error| DbErr::Json(error.to_string()))
}

/// The pending messages of one subject.
#[derive(Clone, Debug, PartialEq, Eq, FromQueryResult)]
pub struct Waiting {
    pub subject: String,
    pub messages: i64,
    /// When the oldest was added, in microseconds since 1970.
    pub oldest_at: i64,
}

impl Store {
    /// Returns the oldest messages that may be published now: none with a key in flight, none of a paused
    /// subject, and none that follows a message of a paused subject with the same key.
    pub async fn oldest_messages(
        &self,
        keys_in_flight: Vec<String>,
        paused_subjects: Vec<String>,
        limit: u64,
    ) -> Result<Vec<outbox::Model>, DbErr> {
        const EARLIER: &str = "earlier";
        let mut query = outbox::Entity::find().order_by_asc(outbox::Column::Id).limit(limit);
        if !keys_in_flight.is_empty() {
            query = query.filter(outbox::Column::Ordering.is_not_in(keys_in_flight));
        }
        if !paused_subjects.is_empty() {
            let of_earlier = |column| Expr::col((Alias::new(EARLIER), column));
            let paused_before = Query::select()
                .expr(Expr::val(1))
                .from_as(outbox::Entity, EARLIER)
                .and_where(
                    of_earlier(outbox::Column::Ordering).equals((outbox::Entity, outbox::Column::Ordering)),
                )
                .and_where(of_earlier(outbox::Column::Id).lt(Expr::col((outbox::Entity, outbox::Column::Id))))
                .and_where(of_earlier(outbox::Column::Subject).is_in(paused_subjects.clone()))
                .to_owned();
            query = query
                .filter(outbox::Column::Subject.is_not_in(paused_subjects))
                .filter(Expr::exists(paused_before).not());
        }
        query.all(self.read()).await
    }

    /// Removes messages that are published.
    pub async fn remove_messages(&self, ids: Vec<i64>) -> Result<(), DbErr> {
        let writer = self.acquire_writer().await;
        outbox::Entity::delete_many().filter(outbox::Column::Id.is_in(ids)).exec(&*writer).await?;
        Ok(())
    }

    /// Returns what waits, by subject.
    pub async fn waiting_messages(&self) -> Result<Vec<Waiting>, DbErr> {
        outbox::Entity::find()
            .select_only()
            .column(outbox::Column::Subject)
            .column_as(outbox::Column::Id.count(), "messages")
            .column_as(outbox::Column::CreatedAt.min(), "oldest_at")
            .group_by(outbox::Column::Subject)
            .order_by_asc(outbox::Column::Subject)
            .into_model::<Waiting>()
            .all(self.read())
            .await
    }
}
