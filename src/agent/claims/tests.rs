use super::*;

/// Nothing was said or read before.
const ALONE: Background<'_> = Background { earlier: &[], has_read: false };

fn created(name: &str) -> Change {
    Change::by_tool("db.task.create", &format!(r#"{{"name":"{name}"}}"#), "{}")
}

fn updated() -> Change {
    Change::by_tool("db.task.update_status", "{}", "{}")
}

fn is_unkept(answer: &str, changes: &[Change], background: Background<'_>) -> bool {
    matches!(assess(answer, changes, background), Assessment::Unkept(_))
}

#[test]
fn claims_without_a_change_are_found() {
    for claim in [
        "I created the task `water-plants`.",
        "I've now created it, as you asked.",
        "Done! I have successfully updated the status.",
        "Created `water-plants`.",
        "The task has been created.",
        "The task `water-plants` was created.",
        "Task water-plants created successfully.",
        "Task water-plants created.",
        "The task is now marked as done.",
        "Sure, we have added two tasks.",
        "All criteria were checked, and the task has been verified.",
        "I started the job.",
        "Okay. I deleted it.",
        "The reports were successfully deleted from the store.",
        "foo was removed.",
        "I renamed foo to bar.",
        "I assigned foo to Bob.",
        "We cancelled foo.",
        "Moved foo to in progress.",
        "I started the workflow.",
        "I wrote the file `notes.md`.",
        "I revoked the lease.",
        "I scheduled the deployment for tomorrow.",
        "Done, I removed everything.",
    ] {
        assert!(is_unkept(claim, &[], ALONE), "{claim}");
    }
}

#[test]
fn text_that_claims_nothing_is_unchanged() {
    for answer in [
        "Two tasks are open: `a` and `b`.",
        "The task `a` was created on Monday by ana.",
        "`a` was last updated at 10:00 UTC.",
        "I could not create it: nothing was changed.",
        "No task was created.",
        "I have not created anything.",
        "I haven't updated it.",
        "Shall I create it? It will be created in project x.",
        "Was it created?",
        "Once it is created, the analyst can verify it.",
        "To have it verified, ask me again.",
        "The task that was created last week is open.",
        "Its status is `completed`.",
        "The completed tasks are `a` and `b`.",
        "`a` is done and verified by an analyst on Friday.",
        "The note says \"I created everything\".",
        "A task is done when its criteria are verified.",
        "",
    ] {
        assert!(!is_unkept(answer, &[], ALONE), "{answer}");
    }
}

#[test]
fn changes_make_claims_true() {
    assert!(!is_unkept("I created `a`.", &[created("a")], ALONE));
    assert!(!is_unkept("I created `a` and marked `b` as done.", &[created("a")], ALONE));
    assert!(!is_unkept("I updated it.", &[updated()], ALONE));
    assert!(!is_unkept("I verified that the task exists.", &[], ALONE));
    assert!(!is_unkept("I updated the task `t-1` and added the criterion `docs`.", &[updated()], ALONE));
    for claim in
        ["I created `a` and deleted `b`.", "I created `a`, and I have started the job.", "I removed it."]
    {
        assert!(is_unkept(claim, &[created("a")], ALONE), "{claim}");
        assert!(!is_unkept(claim, &[created("a"), updated()], ALONE), "{claim}");
    }
    assert!(is_unkept("I created it.", &[updated()], ALONE));
    assert!(is_unkept("It has been verified.", &[updated()], ALONE));
    assert!(!is_unkept("It has been verified.", &[Change::by_verification("t")], ALONE));
    let other = Change::by_tool("wiki.publish", "{}", "{}");
    assert!(!is_unkept("I created the page.", &[other], ALONE));
}

#[test]
fn more_than_was_made_is_a_problem() {
    let all = [created("a"), created("b"), created("c")];
    for claim in ["I created `a`, `b` and `c`.", "I created three tasks.", "I have created 3 new tasks."] {
        assert!(!is_unkept(claim, &all, ALONE), "{claim}");
        assert!(is_unkept(claim, &all[..1], ALONE), "{claim}");
    }
    assert!(!is_unkept("I created `a` in project `demo`.", &all[..1], ALONE));
}

#[test]
fn what_an_earlier_turn_said_is_not_claimed_anew() {
    let earlier = [Message::Assistant { content: "I created `water-plants`.".to_owned(), calls: Vec::new() }];
    assert!(!is_unkept(
        "Yes, I created `water-plants`.",
        &[],
        Background { earlier: &earlier, has_read: false }
    ));
    assert!(!is_unkept("I have created it.", &[], Background { earlier: &earlier, has_read: false }));
    assert!(is_unkept("I created `feed-cat`.", &[], Background { earlier: &earlier, has_read: false }));
}

#[test]
fn what_was_read_can_be_reported() {
    let after_reading = Background { earlier: &[], has_read: true };
    for report in [
        "Nothing is left to do; every task has been verified and closed.",
        "The task has been updated since.",
        "All three tasks have been created.",
    ] {
        assert!(!is_unkept(report, &[], after_reading), "{report}");
    }
    for claim in ["I created the task.", "Updated the task."] {
        assert!(is_unkept(claim, &[], after_reading), "{claim}");
    }
}

/// An answer is only rejected if it surely claims what was not done; what may claim it gets the facts.
#[test]
fn doubtful_answers_are_told_from_plain_ones() {
    for answer in [
        "Task created: deploy-docs",
        "Task `deploy-docs` created in project apollo.",
        "The task was created in project apollo.",
        "All tasks are deleted now.",
        "Status changed to completed.",
        "I created the task deploy-docs - shall I start it?",
        "Done.",
        "The status of `foo` is now done.",
        "`foo` is now in progress.",
    ] {
        assert_ne!(assess(answer, &[], ALONE), Assessment::Fine, "{answer}");
    }
    for answer in ["I've gone ahead and created the task.", "I have archived the task.", "New task created."]
    {
        assert_ne!(assess(answer, &[], ALONE), Assessment::Fine, "{answer}");
    }
    let after_reading = Background { earlier: &[], has_read: true };
    for answer in ["The task `alpha` has been deleted.", "All tasks have been created."] {
        assert_eq!(assess(answer, &[], after_reading), Assessment::Doubtful, "{answer}");
    }
    for (answer, change) in [
        ("I created the task `beta`.", created("wrong-name-1")),
        ("I deleted `alpha-1`.", created("honest-2")),
        ("I marked `honest-2` as completed.", updated()),
    ] {
        assert_ne!(assess(answer, &[change], ALONE), Assessment::Fine, "{answer}");
    }
    for answer in [
        "Completed tasks:\n- none\nPending tasks:\n- alpha",
        "- Created: 2026-11-17",
        "- `a`: completed, write the texts",
        "Two tasks are open, one is completed.",
    ] {
        assert_eq!(assess(answer, &[], after_reading), Assessment::Fine, "{answer}");
    }
    for answer in [
        "Set `proxy_read_timeout 60s;` in the server block.",
        "I created a checklist for you: 1. paint",
        "Updated release note: faster.",
        "I changed `go` to `goes`.",
        "Once you see the message, the task has been created.",
        "It moved me.",
        "Two of them were removed last year.",
    ] {
        assert!(!is_unkept(answer, &[], ALONE), "{answer}");
    }
    let counted = "I created `lambda-2`, so there are now 12 tasks in all.";
    assert_eq!(assess(counted, &[created("lambda-2")], ALONE), Assessment::Fine);
}

#[test]
fn earlier_answer_excuses_only_what_it_said() {
    let said = |text: &str| [Message::Assistant { content: text.to_owned(), calls: Vec::new() }];
    let earlier = said("There is one task: `alpha-1`.");
    let background = Background { earlier: &earlier, has_read: false };
    assert!(is_unkept("I deleted `alpha-1`.", &[], background));
}

#[test]
fn facts_name_what_was_changed() {
    assert_eq!(describe(&[]), "nothing was changed");
    assert_eq!(describe(&[created("kappa-1")]), "these calls succeeded: db.task.create `kappa-1`");
}

/// The words of the first pass are the same as those of the full check.
#[test]
fn every_word_for_a_change_is_looked_for() {
    let mention = ANY_MENTION.as_ref().expect("a pattern");
    for word in VERBS.iter().map(|(verb, _)| *verb).chain(["now", "done"]) {
        assert!(mention.is_match(&format!("It was {}, too", word.to_uppercase())), "{word}");
    }
    assert!(!mention.is_match("Two tasks are open."));
}
