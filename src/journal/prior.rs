//! Records of earlier attempts, and how they are found again. Pure.
//!
//! Nothing is matched by order alone: questions are found by their position in the conversation, calls by
//! tool and arguments, verifications by the id of their handoff. So a newer build that asks or calls more
//! still finds what was done.

use std::collections::BTreeMap;

use subjects::{
    Findings, HandoffId,
    journal::{CallId, Entry, Question, Record, Reply, ToolIntent, ToolOutcome, ToolResult},
};

/// A recorded value and how long it took to obtain.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Remembered<T> {
    pub(crate) value: T,
    pub(crate) ms: u64,
}

#[derive(Debug, Default)]
pub(super) struct PriorRecords {
    // A tree, since it is usually empty and queried for every question.
    replies: BTreeMap<Question, PriorReply>,
    /// Ordered by call number.
    calls: Vec<PriorCall>,
    verifications: BTreeMap<HandoffId, Remembered<Findings>>,
    offered: Option<Vec<String>>,
    next_call: u32,
    asked: BTreeMap<(String, u32), u32>,
}

#[derive(Debug)]
struct PriorReply {
    reply: Remembered<Reply>,
    /// The reply was given to a handoff that this one replays.
    is_replayed: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct PriorCall {
    pub(super) id: CallId,
    pub(super) key: String,
    pub(super) outcome: Option<Remembered<ToolOutcome>>,
    /// The journal already holds the intent of this call.
    pub(super) is_written: bool,
}

impl PriorRecords {
    /// Adds the records of earlier attempts at this handoff.
    pub(super) fn add_own(&mut self, entries: Vec<Entry>) {
        for record in entries.into_iter().flat_map(|entry| entry.records) {
            self.add(record);
        }
        self.calls.sort_by_key(|call| call.id.number);
    }

    /// Adds the records of a replayed handoff. Rejected calls and failed verifications are left out, so that
    /// they are tried again.
    pub(super) fn add_replayed(&mut self, entries: Vec<Entry>) {
        self.add_own(entries);
        self.calls.retain(|call| {
            !matches!(&call.outcome, Some(Remembered { value: ToolOutcome::Rejected { .. }, .. }))
        });
        self.verifications.retain(|_, findings| findings.value.error.is_none());
        self.replies.values_mut().for_each(|reply| reply.is_replayed = true);
    }

    fn add(&mut self, record: Record) {
        match record {
            Record::Claimed(_) | Record::Released | Record::Still => {}
            Record::Context(context) => self.offered = Some(context.tools),
            Record::ModelTurn(turn) => {
                let reply = Remembered { value: turn.reply, ms: turn.ms };
                self.replies.insert(turn.question, PriorReply { reply, is_replayed: false });
            }
            Record::ToolIntent(ToolIntent { call, key }) => {
                self.entry(call, key);
            }
            Record::ToolResult(ToolResult { call, key, outcome, ms }) => {
                self.entry(call, key).outcome = Some(Remembered { value: outcome, ms });
            }
            Record::Verified(verified) => {
                let found = Remembered { value: verified.findings, ms: verified.ms };
                self.verifications.insert(verified.handoff_id, found);
            }
        }
    }

    fn entry(&mut self, id: CallId, key: String) -> &mut PriorCall {
        self.next_call = self.next_call.max(id.number.saturating_add(1));
        let found = self.calls.iter().position(|call| call.id.number == id.number);
        let index = found.unwrap_or_else(|| {
            self.calls.push(PriorCall { id, key, outcome: None, is_written: true });
            self.calls.len() - 1
        });
        &mut self.calls[index]
    }

    /// Takes the stored reply to this question. A reply to a replayed handoff is dropped unless it is usable,
    /// so that the model is called again.
    pub(super) fn take_reply(
        &mut self,
        question: &Question,
        is_usable: impl Fn(&Reply) -> bool,
    ) -> Option<Remembered<Reply>> {
        let prior = self.replies.remove(question)?;
        (!prior.is_replayed || is_usable(&prior.reply.value)).then_some(prior.reply)
    }

    pub(super) fn next_question(&mut self, form: &str, lane: u32) -> Question {
        let asked = self.asked.entry((form.to_owned(), lane)).or_default();
        let repeat = *asked;
        *asked += 1;
        Question::Think { form: form.to_owned(), lane, repeat }
    }

    pub(super) fn take_offered(&mut self) -> Option<Vec<String>> {
        self.offered.take()
    }

    /// Takes the first stored call with this tool and these arguments, or creates a new one. The key of a new
    /// call contains the attempt: the model of an earlier attempt may have made a different call under the
    /// same number, without a record.
    pub(super) fn take_call(
        &mut self,
        handoff: HandoffId,
        attempt: u32,
        tool: &str,
        arguments_hash: String,
    ) -> PriorCall {
        let same = |call: &PriorCall| call.id.tool == tool && call.id.arguments_hash == arguments_hash;
        if let Some(index) = self.calls.iter().position(same) {
            return self.calls.remove(index);
        }
        let number = self.next_call;
        self.next_call += 1;
        PriorCall {
            id: CallId { number, tool: tool.to_owned(), arguments_hash },
            key: format!("{handoff}/{attempt}/{number}"),
            outcome: None,
            is_written: false,
        }
    }

    /// Takes the findings of the verification with one of these ids.
    pub(super) fn take_verification(&mut self, ids: &[HandoffId]) -> Option<Remembered<Findings>> {
        ids.iter().find_map(|id| self.verifications.remove(id))
    }
}

#[cfg(test)]
mod tests {
    use subjects::journal::{Finish, ModelTurn, Tokens};

    use super::*;

    fn handoff() -> HandoffId {
        "0193f2c0-5a00-7000-8000-0000000000aa".parse().unwrap()
    }

    fn prior(entries: Vec<Entry>) -> PriorRecords {
        let mut prior = PriorRecords::default();
        prior.add_own(entries);
        prior
    }

    fn intent(number: u32, tool: &str, hash: &str) -> Record {
        let call = CallId { number, tool: tool.into(), arguments_hash: hash.into() };
        Record::ToolIntent(ToolIntent { call, key: format!("{}/{number}", handoff()) })
    }

    fn rejected(number: u32, tool: &str, hash: &str) -> Record {
        let call = CallId { number, tool: tool.into(), arguments_hash: hash.into() };
        let outcome = ToolOutcome::Rejected { why: "no".into() };
        Record::ToolResult(ToolResult { call, key: format!("{}/{number}", handoff()), outcome, ms: 5 })
    }

    #[test]
    fn call_is_matched_by_tool_and_arguments_and_keeps_its_key() {
        let entries = vec![Entry::new(vec![intent(2, "b", "2"), intent(4, "a", "1")])];
        let mut prior = prior(entries);
        let again = prior.take_call(handoff(), 3, "a", "1".into());
        assert_eq!((again.key.as_str(), again.is_written), (&*format!("{}/4", handoff()), true));
        // A repetition is a new call with an unused number.
        let second = prior.take_call(handoff(), 3, "a", "1".into());
        assert_eq!((second.id.number, second.is_written, &second.outcome), (5, false, &None));
        assert_eq!(second.key, format!("{}/3/5", handoff()), "of this attempt alone");
        assert_eq!(prior.take_call(handoff(), 3, "b", "2".into()).id.number, 2);
    }

    #[test]
    fn identical_calls_are_matched_in_order() {
        let entries = vec![
            Entry::new(vec![intent(0, "a", "1"), intent(1, "a", "1")]),
            Entry::new(vec![rejected(0, "a", "1")]),
        ];
        let mut prior = prior(entries);
        let (first, second) =
            (prior.take_call(handoff(), 3, "a", "1".into()), prior.take_call(handoff(), 3, "a", "1".into()));
        assert_eq!((first.id.number, first.outcome.map(|it| it.ms)), (0, Some(5)));
        assert_eq!((second.id.number, second.outcome), (1, None));
    }

    #[test]
    fn replies_are_matched_by_the_position_of_their_question() {
        let reply = |text: &str| Reply {
            content: text.into(),
            calls: Vec::new(),
            finish: Finish::Stop,
            tokens: Tokens::default(),
            model: "m".into(),
            tries: 1,
            cost_usd: None,
            note: None,
        };
        let turn = |question, text| {
            Record::ModelTurn(ModelTurn { question, request_hash: None, reply: reply(text), ms: 7 })
        };
        let second = Question::Think { form: "plan".into(), lane: 1, repeat: 1 };
        let entries = vec![Entry::new(vec![turn(Question::Turn(1), "one"), turn(second.clone(), "again")])];
        let mut prior = prior(entries);
        let any = |_: &Reply| true;
        assert_eq!(prior.take_reply(&Question::Turn(0), any), None);
        assert_eq!(prior.take_reply(&Question::Turn(1), any).map(|it| it.value.content), Some("one".into()));
        let first = prior.next_question("plan", 1);
        assert_eq!(prior.take_reply(&first, any), None);
        assert_eq!(prior.next_question("plan", 1), second);
        assert_eq!(prior.take_reply(&second, any).map(|it| it.value.content), Some("again".into()));
    }

    #[test]
    fn replay_keeps_keys_and_repeats_rejected_calls() {
        let entries = vec![Entry::new(vec![intent(0, "a", "1"), intent(1, "b", "2"), rejected(1, "b", "2")])];
        let mut prior = PriorRecords::default();
        prior.add_replayed(entries);
        let replay = handoff().replay_id();
        assert_eq!(prior.take_call(replay, 1, "a", "1".into()).key, format!("{}/0", handoff()));
        let again = prior.take_call(replay, 1, "b", "2".into());
        assert_eq!((again.key, again.outcome), (format!("{replay}/1/2"), None));
    }
}
