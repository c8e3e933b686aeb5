//! Records of earlier attempts, and how they are found again. Pure.
//!
//! Nothing is matched by order alone: questions are found by their position in the conversation, calls by
//! tool and arguments, verifications by the id of their handoff. So a newer build that asks or calls more
//! still finds what was done.

use std::collections::BTreeMap;

use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};
use subjects::{
    Findings, HandoffId,
    journal::{CallId, Entry, ModelTurn, Question, Record, Reply, ToolIntent, ToolOutcome, ToolResult},
};
use uuid::Uuid;

/// A recorded value and how long it took to obtain.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Remembered<T> {
    pub(crate) value: T,
    pub(crate) ms: u64,
}

/// Length of the hash in a key. An accidental match would take one call for another.
const KEY_BYTES: usize = 16;

/// A call that an attempt is about to make.
#[derive(Clone, Copy, Debug)]
pub(super) struct Making<'a> {
    /// The first of the handoffs that replay each other. Its journal may be lost; its keys are the same.
    pub(super) origin: HandoffId,
    /// Identifies the claim uniquely, even if a lost journal restarts the count of attempts.
    pub(super) claim: Uuid,
    pub(super) tool: &'a str,
    pub(super) arguments_hash: &'a str,
    pub(super) has_effect: bool,
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
    /// How often a call with an effect was taken, by the first half of its key.
    taken: BTreeMap<String, u32>,
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

    /// Takes the first stored call with this tool and these arguments, or creates a new one.
    pub(super) fn take_call(&mut self, making: &Making<'_>) -> PriorCall {
        let Making { tool, arguments_hash, .. } = *making;
        let new_key = self.take_key(making);
        let same = |call: &PriorCall| call.id.tool == tool && call.id.arguments_hash == arguments_hash;
        if let Some(index) = self.calls.iter().position(same) {
            return self.calls.remove(index);
        }
        let number = self.next_call;
        self.next_call += 1;
        PriorCall {
            id: CallId { number, tool: tool.to_owned(), arguments_hash: arguments_hash.to_owned() },
            key: new_key.unwrap_or_else(|| format!("{}/{}/{number}", making.origin, making.claim.simple())),
            outcome: None,
            is_written: false,
        }
    }

    /// Returns the key of a call with an effect: it tells what the call does, and how many like it came
    /// before. So it is the same in an attempt or a replay whose stream lost the journal, and no other call
    /// has it.
    ///
    /// A read has a key of its claim alone, since reading again is the point of repeating it.
    fn take_key(&mut self, making: &Making<'_>) -> Option<String> {
        if !making.has_effect {
            return None;
        }
        let hash = Sha256::digest(format!("{}\n{}", making.tool, making.arguments_hash));
        let does = HEXLOWER.encode(&hash[..KEY_BYTES]);
        let taken = self.taken.entry(does.clone()).or_default();
        let key = format!("{}/{does}/{taken}", making.origin);
        *taken += 1;
        Some(key)
    }

    /// Takes the turns and results that no later attempt has taken.
    pub(super) fn take_rest(&mut self) -> Vec<Record> {
        let replies =
            std::mem::take(&mut self.replies).into_iter().map(|(question, PriorReply { reply, .. })| {
                let Remembered { value, ms } = reply;
                Record::ModelTurn(ModelTurn { question, request_hash: None, reply: value, ms })
            });
        let results = std::mem::take(&mut self.calls).into_iter().filter_map(|call| {
            let Remembered { value, ms } = call.outcome?;
            Some(Record::ToolResult(ToolResult { call: call.id, key: call.key, outcome: value, ms }))
        });
        replies.chain(results).collect()
    }

    /// Takes the findings of the verification with one of these ids.
    pub(super) fn take_verification(&mut self, ids: &[HandoffId]) -> Option<Remembered<Findings>> {
        ids.iter().find_map(|id| self.verifications.remove(id))
    }
}

#[cfg(test)]
mod tests {
    use subjects::journal::{Finish, Tokens};

    use super::*;

    fn handoff() -> HandoffId {
        "0193f2c0-5a00-7000-8000-0000000000aa".parse().unwrap()
    }

    fn prior(entries: Vec<Entry>) -> PriorRecords {
        let mut prior = PriorRecords::default();
        prior.add_own(entries);
        prior
    }

    const CLAIM: Uuid = Uuid::from_u128(3);

    fn read<'a>(tool: &'a str, arguments_hash: &'a str) -> Making<'a> {
        Making { origin: handoff(), claim: CLAIM, tool, arguments_hash, has_effect: false }
    }

    fn write<'a>(tool: &'a str, arguments_hash: &'a str) -> Making<'a> {
        Making { has_effect: true, ..read(tool, arguments_hash) }
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
        let again = prior.take_call(&read("a", "1"));
        assert_eq!((again.key.as_str(), again.is_written), (&*format!("{}/4", handoff()), true));
        // A repetition is a new call with an unused number.
        let second = prior.take_call(&read("a", "1"));
        assert_eq!((second.id.number, second.is_written, &second.outcome), (5, false, &None));
        assert_eq!(second.key, format!("{}/{}/5", handoff(), CLAIM.simple()), "of this claim alone");
        assert_eq!(prior.take_call(&read("b", "2")).id.number, 2);
    }

    #[test]
    fn effect_has_the_same_key_in_every_attempt() {
        let keys = |claim: u128, calls: &[(&str, &str)]| -> Vec<String> {
            let mut prior = PriorRecords::default();
            let claim = Uuid::from_u128(claim);
            let takes = calls.iter().map(|(tool, hash)| Making { claim, ..write(tool, hash) });
            takes.map(|making| prior.take_call(&making).key).collect()
        };
        let first = keys(1, &[("a", "1"), ("a", "1"), ("a", "2"), ("b", "1")]);
        let different: std::collections::BTreeSet<_> = first.iter().collect();
        assert_eq!(different.len(), 4, "{first:?}");
        // The second attempt found no journal and makes its calls in another order.
        let second = keys(2, &[("b", "1"), ("a", "1"), ("c", "1"), ("a", "1")]);
        assert_eq!((&second[0], &second[1], &second[3]), (&first[3], &first[0], &first[1]));
        assert!(!first.contains(&second[2]));
    }

    /// Stored calls count too, so that one more like them is another call.
    #[test]
    fn repetition_of_a_stored_effect_has_a_key_of_its_own() {
        let key = PriorRecords::default().take_call(&write("a", "1")).key;
        let call = CallId { number: 0, tool: "a".into(), arguments_hash: "1".into() };
        let stored = Record::ToolIntent(ToolIntent { call, key: key.clone() });
        let mut prior = prior(vec![Entry::new(vec![stored])]);
        assert_eq!(prior.take_call(&write("a", "1")).key, key);
        assert_ne!(prior.take_call(&write("a", "1")).key, key);
    }

    #[test]
    fn identical_calls_are_matched_in_order() {
        let entries = vec![
            Entry::new(vec![intent(0, "a", "1"), intent(1, "a", "1")]),
            Entry::new(vec![rejected(0, "a", "1")]),
        ];
        let mut prior = prior(entries);
        let (first, second) = (prior.take_call(&read("a", "1")), prior.take_call(&read("a", "1")));
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
    fn what_was_not_taken_is_left() {
        let result = |number: u32, tool: &str| {
            let call = CallId { number, tool: tool.into(), arguments_hash: "1".into() };
            let outcome = ToolOutcome::Rejected { why: "no".into() };
            Record::ToolResult(ToolResult { call, key: String::new(), outcome, ms: 1 })
        };
        let mut prior = prior(vec![Entry::new(vec![result(0, "a"), intent(1, "b", "1"), result(2, "c")])]);
        prior.take_call(&write("a", "1"));
        let rest = prior.take_rest();
        assert!(matches!(&rest[..], [Record::ToolResult(left)] if left.call.tool == "c"), "{rest:?}");
        assert!(prior.take_rest().is_empty());
    }

    /// A journal that was lost counts attempts from one again. A read with the key of an earlier one would
    /// get the answer of that, or be refused for its arguments.
    #[test]
    fn read_has_another_key_in_each_claim() {
        let key = |claim: u128| {
            let making = Making { claim: Uuid::from_u128(claim), ..read("a", "1") };
            PriorRecords::default().take_call(&making).key
        };
        assert_ne!(key(1), key(2));
    }

    #[test]
    fn replay_keeps_keys_and_repeats_rejected_calls() {
        let entries = vec![Entry::new(vec![intent(0, "a", "1"), intent(1, "b", "2"), rejected(1, "b", "2")])];
        let mut prior = PriorRecords::default();
        prior.add_replayed(entries);
        let kept = prior.take_call(&write("a", "1"));
        assert_eq!(kept.key, format!("{}/0", handoff()));
        let again = prior.take_call(&write("b", "2"));
        assert_eq!(again.outcome, None);
        // A replay that finds no journal gives the key that the first handoff gave.
        assert_eq!(again.key, PriorRecords::default().take_call(&write("b", "2")).key);
    }
}
