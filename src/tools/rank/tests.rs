use serde_json::Value;

use super::{Candidate, Ranking};

const OFFERED: usize = 8;
/// G6 asks for 45 of 50. Of the goals that it was made with, of those that were held out, and of those for a
/// catalogue that it was not made for, the ranking finds 50 of 50, 48 of 50 and 52 of 67.
const MIN_FOUND: usize = 48;
const MIN_FOUND_HELD_OUT: usize = 48;
const MIN_FOUND_IN_OTHER: usize = 50;

struct Tool {
    name: String,
    description: String,
    arguments: String,
}

fn read(text: &str) -> Vec<Value> {
    serde_json::from_str(text).unwrap()
}

fn text(value: &Value, field: &str) -> String {
    value[field].as_str().unwrap().to_owned()
}

fn tools(json: &str) -> Vec<Tool> {
    let to_tool = |value: &Value| {
        let properties = value["input_schema"]["properties"].as_object();
        let arguments: Vec<&str> =
            properties.into_iter().flat_map(|map| map.keys().map(String::as_str)).collect();
        Tool {
            name: text(value, "name"),
            description: text(value, "description"),
            arguments: arguments.join(" "),
        }
    };
    read(json).iter().map(to_tool).collect()
}

fn catalogue() -> Vec<Tool> {
    tools(include_str!("../../../tests/data/ranking/catalogue.json"))
}

fn ranking(tools: &[Tool]) -> Ranking {
    Ranking::new(tools.iter().map(|tool| Candidate {
        name: &tool.name,
        title: "",
        description: &tool.description,
        arguments: &tool.arguments,
    }))
}

fn named(pairs: &[(&str, &str)]) -> Vec<Tool> {
    pairs
        .iter()
        .map(|(name, description)| Tool {
            name: (*name).into(),
            description: (*description).into(),
            arguments: String::new(),
        })
        .collect()
}

fn offered<'t>(tools: &'t [Tool], goal: &str, limit: usize) -> Vec<&'t str> {
    ranking(tools).best(goal, limit).into_iter().map(|index| tools[index].name.as_str()).collect()
}

/// Returns for how many goals the right tool is offered, and prints the misses.
fn found(tools: &[Tool], goals: &str) -> usize {
    let ranking = ranking(tools);
    let mut found = 0;
    let mut reciprocal_ranks = 0.0;
    for value in read(goals) {
        let (goal, tool) = (text(&value, "goal"), text(&value, "tool"));
        assert!(tools.iter().any(|known| known.name == tool), "{tool} is not in the catalogue");
        let order = ranking.best(&goal, 20);
        let place = order.iter().position(|index| tools[*index].name == tool);
        if let Some(place) = place.filter(|place| *place < OFFERED) {
            found += 1;
            reciprocal_ranks += 1.0 / (place as f64 + 1.0);
        } else {
            let first: Vec<&str> =
                order.iter().take(OFFERED).map(|index| tools[*index].name.as_str()).collect();
            eprintln!("missed {tool} ({place:?}) for {goal:?}: {first:?}");
        }
    }
    eprintln!("found {found}, mean reciprocal rank {:.3}", reciprocal_ranks / read(goals).len() as f64);
    found
}

/// G6: the right tool is among the first eight.
#[test]
fn finds_the_right_tool_for_written_goals() {
    assert!(found(&catalogue(), include_str!("../../../tests/data/ranking/goals.json")) >= MIN_FOUND);
}

#[test]
fn finds_the_right_tool_in_another_catalogue() {
    let tools = tools(include_str!("../../../tests/data/ranking/other_catalogue.json"));
    assert!(
        found(&tools, include_str!("../../../tests/data/ranking/other_goals.json")) >= MIN_FOUND_IN_OTHER
    );
}

#[test]
fn finds_the_right_tool_for_goals_it_was_not_made_with() {
    assert!(
        found(&catalogue(), include_str!("../../../tests/data/ranking/goals_held_out.json"))
            >= MIN_FOUND_HELD_OUT
    );
}

#[test]
fn never_offers_all_tools() {
    let tools = catalogue();
    let everything: String =
        tools.iter().flat_map(|tool| [&tool.name, " ", &tool.description, " "]).collect();
    assert!(offered(&tools, &everything, usize::MAX).len() < tools.len());
    let two = named(&[("task.create", "Creates a task."), ("task.list", "Lists tasks.")]);
    assert_eq!(offered(&two, "list the tasks", 8), ["task.list"]);
    assert_eq!(offered(&two, "", 8).len(), 1);
    assert!(offered(&tools, "list the tasks", 0).is_empty());
    assert_eq!(offered(&tools, "list the tasks", 3).len(), 3);
}

/// Shuffles with a small generator, so that every run shuffles alike.
fn shuffle(tools: &mut [Tool], seed: &mut u64) {
    for last in (1..tools.len()).rev() {
        *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        tools.swap(last, usize::try_from(*seed >> 33).unwrap() % (last + 1));
    }
}

#[test]
fn order_of_the_catalogue_does_not_matter() {
    let goals: Vec<String> = read(include_str!("../../../tests/data/ranking/goals.json"))
        .iter()
        .map(|value| text(value, "goal"))
        .collect();
    let all_names = |tools: &[Tool]| -> Vec<Vec<String>> {
        let ranking = ranking(tools);
        let names =
            |goal: &String| ranking.best(goal, 20).iter().map(|index| tools[*index].name.clone()).collect();
        goals.iter().chain([&String::new()]).map(names).collect()
    };
    let mut tools = catalogue();
    let expected = all_names(&tools);
    let mut seed = 7;
    for _ in 0..100 {
        shuffle(&mut tools, &mut seed);
        assert_eq!(all_names(&tools), expected);
    }
}

#[test]
fn all_tools_that_match_alike_are_offered() {
    let tools =
        named(&[("c.note", "Notes."), ("a.note", "Notes."), ("b.note", "Notes."), ("z.other", "Other.")]);
    let mut offered = offered(&tools, "note", 8);
    offered.sort_unstable();
    assert_eq!(offered, ["a.note", "b.note", "c.note"]);
}

#[test]
fn goal_without_a_known_word_gets_a_small_default() {
    let tools = catalogue();
    for goal in ["", "   ", "please could you, thanks", "?!…", "e\u{301}\u{200d} 1234 ---", "\0\"`\u{feff}"]
    {
        let offered = offered(&tools, goal, OFFERED);
        assert_eq!(offered.get(..2), Some(["help.get", "help.list"].as_slice()), "{goal:?}");
        assert!(offered.len() <= OFFERED);
    }
}

#[test]
fn small_and_unusual_catalogues_are_ranked() {
    assert!(offered(&[], "list the tasks", 8).is_empty());
    assert!(offered(&[], "", 8).is_empty());
    let one = named(&[("task.list", "Lists tasks.")]);
    assert_eq!(offered(&one, "list the tasks", 8), ["task.list"]);
    assert_eq!(offered(&one, "", 8), ["task.list"]);
    let unusual = named(&[("", ""), ("...", "…"), ("Überblick.Größe", "Zeigt die Größe 📦.")]);
    assert_eq!(offered(&unusual, "GRÖSSE größe", 8), ["Überblick.Größe"]);
}

#[test]
fn reads_names_in_every_style() {
    let names = ["createIssue", "list-issues", "GitHub/getFile", "send_message", "unrelated"];
    let tools = named(&names.map(|name| (name, "")));
    assert_eq!(offered(&tools, "create an issue", 1), ["createIssue"]);
    assert_eq!(offered(&tools, "list the issues", 1), ["list-issues"]);
    assert_eq!(offered(&tools, "a file on github", 1), ["GitHub/getFile"]);
    assert_eq!(offered(&tools, "messages to be sent", 1), ["send_message"]);
}

#[test]
fn a_tool_named_in_the_goal_is_offered() {
    let tools = catalogue();
    for tool in &tools {
        let goal = format!("Please use {} for this", tool.name);
        assert!(offered(&tools, &goal, 3).contains(&tool.name.as_str()), "{}", tool.name);
    }
}

#[test]
fn tolerates_misspelt_words() {
    let tools = catalogue();
    assert!(offered(&tools, "crate a new projcet for me", OFFERED).contains(&"db.project.create"));
    assert!(offered(&tools, "downlaod the languge modle", OFFERED).contains(&"model.pull"));
    assert!(offered(&tools, "show the calender", OFFERED).contains(&"calendar.event.list"));
}

#[test]
fn long_goals_are_read_at_both_ends() {
    let tools = catalogue();
    let filler = (0..9000).map(|number| format!("wörd{number}")).collect::<Vec<_>>().join(" ");
    assert!(filler.len() > 64 * 1024);
    for goal in [format!("Clone the repository {filler}"), format!("{filler} clone the repository")] {
        assert_eq!(offered(&tools, &goal, OFFERED).first(), Some(&"git.clone"));
    }
}

#[test]
fn goals_in_other_languages_are_harmless() {
    let tools = catalogue();
    for goal in [
        "Bitte erstelle ein neues Projekt für den Bereich",
        "新しいタスクを作成してください",
        "создай задачу",
    ] {
        let offered = offered(&tools, goal, OFFERED);
        assert!(!offered.is_empty() && offered.len() <= OFFERED, "{goal}");
    }
}
