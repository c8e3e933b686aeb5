#[test]
fn dump() {
    let all: std::collections::BTreeMap<_, _> = control::all()
        .iter()
        .map(|t| (t.name, serde_json::json!({"title": t.title, "d": t.description, "i": &*t.input, "o": &*t.output, "needs": t.needs.len(), "does": format!("{:?}", t.does)})))
        .collect();
    std::fs::write(std::env::var("DUMP").unwrap(), serde_json::to_string_pretty(&all).unwrap()).unwrap();
}
