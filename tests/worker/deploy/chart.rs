//! Renders the Helm chart. Helm is in no package registry, so this uses another engine for the same template
//! language, with those functions of Helm that the chart uses. It shows that the templates produce manifests,
//! not that Helm produces the same ones.

use std::{cell::RefCell, fs};

use gtmpl::{Context, FuncError, Template, Value};
use serde_json::json;
use testkit::workspace;

const CHART: &str = "deploy/helm/cynode";

thread_local! {
    /// The named templates for `include`; a function of the engine cannot hold state.
    static HELPERS: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Every manifest of the chart with the name of its template.
pub(crate) fn manifests(changed: impl Fn(&mut serde_json::Value)) -> Vec<(String, serde_json::Value)> {
    let chart = workspace().join(CHART);
    let read = |name: &str| fs::read_to_string(chart.join(name)).unwrap();
    let yaml = |name: &str| -> serde_json::Value { serde_yaml_ng::from_str(&read(name)).unwrap() };
    let mut values = yaml("values.yaml");
    changed(&mut values);
    let about = yaml("Chart.yaml");
    let data = json!({
        "Values": values,
        "Release": { "Name": "cynode", "Namespace": "agents", "Service": "Helm" },
        "Chart": { "Name": about["name"], "AppVersion": about["appVersion"], "Version": about["version"] },
    });
    HELPERS.set(read("templates/_helpers.tpl"));
    let mut names: Vec<_> = fs::read_dir(chart.join("templates"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".yaml"))
        .collect();
    names.sort();
    let mut found = Vec::new();
    for name in names {
        let text = render(&read(&format!("templates/{name}")), value(&data))
            .unwrap_or_else(|e| panic!("{name}: {e}"));
        for document in text.split("\n---\n").filter(|part| part.lines().any(|line| !is_empty(line))) {
            let manifest =
                serde_yaml_ng::from_str(document).unwrap_or_else(|e| panic!("{name}: {e}\n{document}"));
            found.push((name.clone(), manifest));
        }
    }
    found
}

fn is_empty(line: &str) -> bool {
    line.trim().is_empty() || line.trim_start().starts_with('#')
}

fn render(text: &str, data: Value) -> Result<String, String> {
    let mut template = Template::default();
    template.add_func("include", include);
    template.add_func("quote", quote);
    template.add_func("nindent", nindent);
    template.add_func("toJson", to_json);
    let helpers = HELPERS.with_borrow(String::clone);
    template.parse(format!("{helpers}{text}")).map_err(|error| error.to_string())?;
    template.render(&Context::from(data)).map_err(|error| error.to_string())
}

fn include(arguments: &[Value]) -> Result<Value, FuncError> {
    let [Value::String(name), data] = arguments else {
        return Err(wrong("include takes a name and a value"));
    };
    render(&format!("{{{{ template \"{name}\" . }}}}"), data.clone()).map(Value::from).map_err(|e| wrong(&e))
}

fn quote(arguments: &[Value]) -> Result<Value, FuncError> {
    Ok(Value::from(serde_json::Value::from(arguments[0].to_string()).to_string()))
}

fn nindent(arguments: &[Value]) -> Result<Value, FuncError> {
    let [width, Value::String(text)] = arguments else {
        return Err(wrong("nindent takes a width and a text"));
    };
    let width: usize = width.to_string().parse().map_err(|_| wrong("nindent takes a number"))?;
    let lines: Vec<String> =
        text.trim_start_matches('\n').lines().map(|line| " ".repeat(width) + line).collect();
    Ok(Value::from(format!("\n{}", lines.join("\n"))))
}

fn to_json(arguments: &[Value]) -> Result<Value, FuncError> {
    Ok(Value::from(json_of(&arguments[0]).to_string()))
}

fn wrong(what: &str) -> FuncError {
    FuncError::Generic(what.to_owned())
}

fn value(json: &serde_json::Value) -> Value {
    match json {
        serde_json::Value::Null => Value::Nil,
        serde_json::Value::Bool(truth) => Value::from(*truth),
        serde_json::Value::Number(number) => {
            number.as_i64().map_or_else(|| Value::from(number.as_f64()), Value::from)
        }
        serde_json::Value::String(text) => Value::from(text.as_str()),
        serde_json::Value::Array(items) => Value::Array(items.iter().map(value).collect()),
        serde_json::Value::Object(members) => {
            Value::Map(members.iter().map(|(name, member)| (name.clone(), value(member))).collect())
        }
    }
}

fn json_of(value: &Value) -> serde_json::Value {
    match value {
        Value::Bool(truth) => json!(truth),
        Value::String(text) => json!(text),
        Value::Number(number) => number.to_string().parse().unwrap_or_default(),
        Value::Array(items) => items.iter().map(json_of).collect(),
        Value::Map(members) | Value::Object(members) => {
            members.iter().map(|(name, member)| (name.clone(), json_of(member))).collect()
        }
        _ => serde_json::Value::Null,
    }
}
