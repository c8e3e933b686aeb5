//! What earlier attempts have left, and how it is found again.
//!
//! Nothing is played back by its order alone. Questions are found by their place in the conversation, calls by what is
//! called with which arguments, verifications by the id of their handoff: a later build may ask or call more than the one
//! that began, and still finds what was done.

use std::collections::BTreeMap;

use subjects::{
    Findings, HandoffId,
    journal::{CallId, Entry, Question, Record, Reply, ToolIntent, ToolOutcome, ToolResult},
};

/// Something that happened before, and how long it took then.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Remembered<T> {
    pub(crate) value: T,
    pub(crate) ms: u64,
}

#[derive(Debug, Default)]
pub(super) struct Known {
    // Mostly empty, and asked for every question: an empty tree costs nothing to ask.
    replies: BTreeMap<Question, KnownReply>,
    /// In the order of their numbers.
    calls: Vec<KnownCall>,
    verifications: BTreeMap<HandoffId, Remembered<Findings>>,
    offered: Option<Vec<String>>,
    next_call: u32,
    thoughts: BTreeMap<(String, u32), u32>,
}

#[derive(Debug)]
struct KnownReply {
    reply: Remembered<Reply>,
    /// It was given to a handoff that this one replays.
    is_earlier: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct KnownCall {
    pub(super) id: CallId,
    pub(super) key: String,
    pub(super) outcome: Option<Remembered<ToolOutcome>>,
    /// It is in the journal that it is to be made.
    pub(super) is_written: bool,
}

impl Known {
    /// Adds what earlier attempts at this handoff did.
    pub(super) fn add_own(&mut self, entries: Vec<Entry>) {
        for record in entries.into_iter().flat_map(|entry| entry.records) {
            self.add(record);
        }
        self.calls.sort_by_key(|call| call.id.number);
    }

    /// Adds what a handoff did that this one replays. What failed there is tried again: that is what a replay is for.
    pub(super) fn add_earlier(&mut self, entries: Vec<Entry>) {
        self.add_own(entries);
        self.calls.retain(|call| {
            !matches!(&call.outcome, Some(Remembered { value: ToolOutcome::Rejected { .. }, .. }))
        });
        self.verifications.retain(|_, findings| findings.value.error.is_none());
        self.replies.values_mut().for_each(|reply| reply.is_earlier = true);
    }

    fn add(&mut self, record: Record) {
        match record {
            Record::Claimed(_) | Record::Released | Record::Still => {}
            Record::Context(context) => self.offered = Some(context.tools),
            Record::ModelTurn(turn) => {
                let reply = Remembered { value: turn.reply, ms: turn.ms };
                self.replies.insert(turn.question, KnownReply { reply, is_earlier: false });
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

    fn entry(&mut self, id: CallId, key: String) -> &mut KnownCall {
        self.next_call = self.next_call.max(id.number.saturating_add(1));
        let found = self.calls.iter().position(|call| call.id.number == id.number);
        let index = found.unwrap_or_else(|| {
            self.calls.push(KnownCall { id, key, outcome: None, is_written: true });
            self.calls.len() - 1
        });
        &mut self.calls[index]
    }

    /// Returns what the model answered to this question. What a replayed handoff failed for is not returned: the model is
    /// to be asked again.
    pub(super) fn answer_to(
        &mut self,
        question: &Question,
        is_usable: impl Fn(&Reply) -> bool,
    ) -> Option<Remembered<Reply>> {
        let known = self.replies.remove(question)?;
        (!known.is_earlier || is_usable(&known.reply.value)).then_some(known.reply)
    }

    pub(super) fn think(&mut self, form: &str, lane: u32) -> Question {
        let asked = self.thoughts.entry((form.to_owned(), lane)).or_default();
        let repeat = *asked;
        *asked += 1;
        Question::Think { form: form.to_owned(), lane, repeat }
    }

    pub(super) fn offered(&mut self) -> Option<Vec<String>> {
        self.offered.take()
    }

    /// Returns the first such call that was not asked for yet, or a new one. The key of a new one names the attempt: the
    /// model of an earlier attempt may have made another call in its place, of which nothing is stored.
    pub(super) fn call(
        &mut self,
        handoff: HandoffId,
        attempt: u32,
        tool: &str,
        arguments_hash: String,
    ) -> KnownCall {
        let same = |call: &KnownCall| call.id.tool == tool && call.id.arguments_hash == arguments_hash;
        if let Some(index) = self.calls.iter().position(same) {
            return self.calls.remove(index);
        }
        let number = self.next_call;
        self.next_call += 1;
        KnownCall {
            id: CallId { number, tool: tool.to_owned(), arguments_hash },
            key: format!("{handoff}/{attempt}/{number}"),
            outcome: None,
            is_written: false,
        }
    }

    /// Returns the findings of the verification with one of these ids.
    pub(super) fn verification(&mut self, ids: &[HandoffId]) -> Option<Remembered<Findings>> {
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

    fn known(entries: Vec<Entry>) -> Known {
        let mut known = Known::default();
        known.add_own(entries);
        known
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
    fn a_call_is_found_by_what_it_is_and_keeps_its_key() {
        let entries = vec![Entry::new(vec![intent(2, "b", "2"), intent(4, "a", "1")])];
        let mut known = known(entries);
        let again = known.call(handoff(), 3, "a", "1".into());
        assert_eq!((again.key.as_str(), again.is_written), (&*format!("{}/4", handoff()), true));
        // Made a second time it is another call, with a number that none has had.
        let second = known.call(handoff(), 3, "a", "1".into());
        assert_eq!((second.id.number, second.is_written, &second.outcome), (5, false, &None));
        assert_eq!(second.key, format!("{}/3/5", handoff()), "of this attempt alone");
        assert_eq!(known.call(handoff(), 3, "b", "2".into()).id.number, 2);
    }

    #[test]
    fn the_same_call_twice_is_two_calls_in_their_order() {
        let entries = vec![
            Entry::new(vec![intent(0, "a", "1"), intent(1, "a", "1")]),
            Entry::new(vec![rejected(0, "a", "1")]),
        ];
        let mut known = known(entries);
        let (first, second) =
            (known.call(handoff(), 3, "a", "1".into()), known.call(handoff(), 3, "a", "1".into()));
        assert_eq!((first.id.number, first.outcome.map(|it| it.ms)), (0, Some(5)));
        assert_eq!((second.id.number, second.outcome), (1, None));
    }

    #[test]
    fn questions_are_found_by_their_place() {
        let reply = |text: &str| Reply {
            content: text.into(),
            calls: Vec::new(),
            finish: Finish::Stop,
            tokens: Tokens::default(),
            model: "m".into(),
            tries: 1,
            cost_usd: None,
        };
        let turn = |question, text| {
            Record::ModelTurn(ModelTurn { question, request_hash: None, reply: reply(text), ms: 7 })
        };
        let second = Question::Think { form: "plan".into(), lane: 1, repeat: 1 };
        let entries = vec![Entry::new(vec![turn(Question::Turn(1), "one"), turn(second.clone(), "again")])];
        let mut known = known(entries);
        let any = |_: &Reply| true;
        assert_eq!(known.answer_to(&Question::Turn(0), any), None);
        assert_eq!(known.answer_to(&Question::Turn(1), any).map(|it| it.value.content), Some("one".into()));
        let first = known.think("plan", 1);
        assert_eq!(known.answer_to(&first, any), None);
        assert_eq!(known.think("plan", 1), second);
        assert_eq!(known.answer_to(&second, any).map(|it| it.value.content), Some("again".into()));
    }

    #[test]
    fn replay_keeps_keys_and_results_and_tries_what_was_rejected_again() {
        let entries = vec![Entry::new(vec![intent(0, "a", "1"), intent(1, "b", "2"), rejected(1, "b", "2")])];
        let mut known = Known::default();
        known.add_earlier(entries);
        let replay = handoff().replayed();
        assert_eq!(known.call(replay, 1, "a", "1".into()).key, format!("{}/0", handoff()));
        let again = known.call(replay, 1, "b", "2".into());
        assert_eq!((again.key, again.outcome), (format!("{replay}/1/2"), None));
    }
}
