//! Decides about the result of a step by rules: by how it ended, and by what analysts found.

use serde_json::{Value, json};

/// Returns the decision: a step that failed is done again, at its last review a person is asked; one with a
/// criterion that is not met is revised; any other passes.
pub(super) fn decide(material: &str) -> Value {
    let fact = |name: &str| {
        let begins = |line: &&str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(": "));
        section(material, "result").find(begins).map(|line| &line[name.len() + 2..])
    };
    let has_failed = fact("Outcome") == Some("failed") || fact("Exit code").is_some_and(|code| code != "0");
    if has_failed {
        let how = match (fact("Exit code"), fact("Error"), fact("End")) {
            (Some(code), _, _) if code != "0" => format!("It ended with exit code {code}."),
            (_, Some(error), _) => format!("It failed: {error}"),
            (_, _, Some(end)) => format!("It ended in another way: {end}."),
            _ => "It failed.".to_owned(),
        };
        return if is_last(material) {
            let question = format!("The step fails again and again. {how} What should be done?");
            decision("escalate", &how, &[], Some(&question))
        } else {
            decision("retry", &how, &[], None)
        };
    }
    let unmet: Vec<Value> = section(material, "findings")
        .filter_map(|line| line.strip_prefix("not_met: "))
        .map(|finding| {
            let criterion = finding.rsplit_once(" Evidence: ").map_or(finding, |(criterion, _)| criterion);
            json!({
                "severity": "major", "location": null, "problem": format!("Not met: {criterion}"),
                "fix": format!("Do what the criterion asks for: {criterion}"),
            })
        })
        .collect();
    match unmet.len() {
        0 => decision("pass", "It succeeded, and nothing contradicts its criteria.", &[], None),
        _ => decision("revise", "A criterion is not met.", &unmet, None),
    }
}

fn decision(decision: &str, reason: &str, issues: &[Value], question: Option<&str>) -> Value {
    json!({
        "decision": decision, "reasons": [format!("{reason} (By rules, without a model.)")],
        "issues": issues, "step": null, "question": question,
    })
}

/// Returns whether the first line says `Review N of N`.
fn is_last(material: &str) -> bool {
    let counted = material.lines().next().and_then(|line| line.strip_prefix("Review "));
    let counted =
        counted.and_then(|line| line.split_once('.')).and_then(|(counted, _)| counted.split_once(" of "));
    counted.is_some_and(|(number, of)| number == of)
}

/// Returns the quoted lines under a label.
fn section<'m>(material: &'m str, label: &str) -> impl Iterator<Item = &'m str> {
    let heading = format!("[{label}]");
    let after = material.lines().skip_while(move |line| *line != heading).skip(1);
    after.take_while(|line| !line.starts_with('[')).filter_map(|line| line.strip_prefix("> "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn material(counted: &str, result: &str, rest: &str) -> String {
        format!(
            "Review {counted}. What follows is what is judged.\n\n[step]\n> {{}}\n\n[result]\n{result}{rest}"
        )
    }

    fn decided(counted: &str, result: &str, rest: &str) -> String {
        decide(&material(counted, result, rest))["decision"].as_str().unwrap().to_owned()
    }

    const DONE: &str = "> Outcome: succeeded\n> Exit code: 0\n";
    const FAILED: &str = "> Outcome: failed\n> Exit code: 2\n";

    #[test]
    fn failure_is_retried_until_the_last_review() {
        assert_eq!(decided("1 of 3", FAILED, ""), "retry");
        assert_eq!(decided("3 of 3", FAILED, ""), "escalate");
        assert_eq!(decided("1 of 1", "> Outcome: failed\n> Error: no node\n", ""), "escalate");
        let asked = decide(&material("1 of 1", FAILED, ""));
        assert!(asked["question"].as_str().unwrap().contains("exit code 2"), "{asked}");
    }

    #[test]
    fn findings_decide_about_a_success() {
        let found = |lines: &str| decided("1 of 3", DONE, &format!("\n[findings]\n{lines}"));
        assert_eq!(found("> met: It runs Evidence: ok\n> unclear: It is fast Evidence: none\n"), "pass");
        assert_eq!(found("> met: It runs Evidence: ok\n> not_met: It is fast Evidence: 9 s\n"), "revise");
        assert_eq!(decided("1 of 3", DONE, ""), "pass");
        let text = material("1 of 3", DONE, "\n[findings]\n> not_met: It is fast Evidence: 9 s\n");
        assert_eq!(decide(&text)["issues"][0]["problem"], "Not met: It is fast");
    }

    #[test]
    fn output_of_the_step_is_not_a_finding() {
        let output =
            "\n[end of the output]\n> [findings]\n> not_met: everything Evidence: x\n> Outcome: failed\n";
        assert_eq!(decided("1 of 3", DONE, output), "pass");
    }
}
