//! `thread.turn.begin` without the name of a thread: which one its messages find.

use contract::thread::{AnswerState, BeginTurn, Turn};
use subjects::ChatMessage;

use super::{answer, assistant, begin, complete, contents, end_as, fails, request, user, with_keys};
use crate::stage::{Stage, on_both};

on_both![
    question_is_answered_only_by_a_request_that_repeats_it,
    text_before_an_answer_does_not_hide_it,
    of_several_repeated_answers_the_longest_decides,
    request_in_a_new_thread_goes_on_in_no_other,
];

/// Begins a conversation with `book it`, which is answered.
async fn begin_booking(stage: &Stage, state: AnswerState, text: &str) -> Turn {
    let turn = begin(stage, &request(vec![user("book it")])).await;
    assert!(end_as(stage, turn.handoff_id, answer(state, text)).await);
    turn
}

fn booking(answered: &str, then: &str) -> Vec<ChatMessage> {
    vec![user("book it"), assistant(answered), user(then)]
}

async fn question_is_answered_only_by_a_request_that_repeats_it(stage: Stage) {
    with_keys(&stage).await;
    let edited = begin_booking(&stage, AnswerState::Completed, "Booked.").await;
    complete(&stage, &begin(&stage, &request(booking("Booked.", "thanks"))).await, "!").await;
    let asking = begin_booking(&stage, AnswerState::Question, "Which room?").await;
    // The user edits the last message of the first conversation, which has gone on since.
    let branch = begin(&stage, &request(booking("Booked.", "and a car"))).await;
    assert_eq!((branch.continues, branch.position), (None, 0));
    assert_eq!(contents(&branch.messages), ["book it", "Booked.", "and a car"]);
    assert!(branch.thread_id != asking.thread_id && branch.thread_id != edited.thread_id);
    complete(&stage, &branch, "Both.").await;
    // The question is still open.
    let answered = begin(&stage, &request(booking("Which room?", "The blue one."))).await;
    assert_eq!((answered.continues, &answered.thread_id), (Some(asking.handoff_id), &asking.thread_id));
}

/// Streams send what the manager said while it worked as content, before the answer.
async fn text_before_an_answer_does_not_hide_it(stage: Stage) {
    with_keys(&stage).await;
    let asking = begin_booking(&stage, AnswerState::Question, "Which room?").await;
    let first = begin_booking(&stage, AnswerState::Completed, "Booked.").await;
    begin_booking(&stage, AnswerState::Completed, "There is none.").await;
    let on = begin(&stage, &request(booking("Let me look.\n\nBooked.\n", "thanks"))).await;
    assert_eq!((on.continues, &on.thread_id), (None, &first.thread_id));
    let on = begin(&stage, &request(booking("Let me look.\n\nWhich room?", "The blue one."))).await;
    assert_eq!((on.continues, &on.thread_id), (Some(asking.handoff_id), &asking.thread_id));
}

async fn of_several_repeated_answers_the_longest_decides(stage: Stage) {
    with_keys(&stage).await;
    let long = begin_booking(&stage, AnswerState::Completed, "Not yet: it is full.").await;
    begin_booking(&stage, AnswerState::Completed, "it is full.").await;
    begin_booking(&stage, AnswerState::Completed, "").await;
    let on = begin(&stage, &request(booking("Not yet: it is full.", "tomorrow?"))).await;
    assert_eq!(on.thread_id, long.thread_id);
}

async fn request_in_a_new_thread_goes_on_in_no_other(stage: Stage) {
    with_keys(&stage).await;
    let first = begin_booking(&stage, AnswerState::Completed, "Booked.").await;
    let new = BeginTurn { in_new_thread: true, ..request(booking("Booked.", "thanks")) };
    let branch = begin(&stage, &new).await;
    assert_ne!(branch.thread_id, first.thread_id);
    assert_eq!((branch.position, contents(&branch.messages)), (0, vec!["book it", "Booked.", "thanks"]));
    let named = BeginTurn { thread: Some("t".to_owned()), ..new };
    assert_eq!(fails(&stage, &named).await.0, "invalid_arguments");
}
