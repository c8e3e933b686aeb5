//! Schedules in the console, with forms alone and in Chromium.

use std::path::Path;

use testkit::Browser;

use super::{
    browser::{assert_no_faults, enter},
    support::{Gateway, Visitor},
};

const LIST: &str = "/console/schedules";

/// Fields of a daily schedule.
const DAILY: [(&str, &str); 6] = [
    ("name", "morning report"),
    ("timing", "cron"),
    ("expression", "30 2 * * *"),
    ("time_zone", "Europe/Berlin"),
    ("payload", "prompt"),
    ("prompt", "Write the report."),
];

fn with<'f>(fields: &[(&'f str, &'f str)], more: &[(&'f str, &'f str)]) -> Vec<(&'f str, &'f str)> {
    [fields, more].concat()
}

/// Returns the value of a hidden field.
fn hidden(page: &str, name: &str) -> String {
    let field =
        page.split(&format!("name=\"{name}\" value=\"")).nth(1).unwrap_or_else(|| panic!("{name}: {page}"));
    field.split('"').next().unwrap().replace("&quot;", "\"")
}

/// Creates a schedule as the form does: previewed, then saved. Returns the address of its page.
async fn create(visitor: &Visitor<'_>, fields: &[(&str, &str)]) -> String {
    let shown = visitor.post(LIST, &with(fields, &[("step", "preview")])).await;
    assert_eq!(shown.status, 200, "{}", shown.body);
    let previewed = hidden(&shown.body, "previewed");
    let saved = visitor.post(LIST, &with(fields, &[("step", "save"), ("previewed", &previewed)])).await;
    assert_eq!(saved.status, 303, "{}", saved.body);
    saved.header("location").unwrap().to_owned()
}

#[tokio::test]
async fn new_schedule_shows_its_next_ten_firings_before_it_is_saved() {
    let gateway = Gateway::start().await;
    let admin = gateway.administrator().await;
    let user = gateway.sign_in(&admin.issue_user("ada").await).await;
    assert!(user.get(LIST).await.shows("No schedules."));
    for step in ["preview", "save", ""] {
        let shown = user.post(LIST, &with(&DAILY, &[("step", step)])).await;
        assert_eq!(shown.status, 200, "{}", shown.body);
        assert_eq!(shown.body.matches("<tr role=\"row\">").count(), 11, "a head and ten firings");
        assert!(shown.shows("02:30:00 +0") && shown.shows("Create the schedule"), "{}", shown.body);
        assert!(shown.shows("value=\"morning report\"") && shown.shows("Write the report."), "input is kept");
        assert!(user.get(LIST).await.shows("No schedules."), "nothing is stored yet");
    }
    // The timing is changed after the preview: it is shown again.
    let shown = user.post(LIST, &with(&DAILY, &[("step", "preview")])).await;
    let previewed = hidden(&shown.body, "previewed");
    let changed = with(&DAILY, &[("expression", "30 3 * * *"), ("step", "save"), ("previewed", &previewed)]);
    let shown = user.post(LIST, &changed).await;
    assert!(shown.status == 200 && shown.shows("The timing was changed"), "{}", shown.body);

    let page = create(&user, &DAILY).await;
    let shown = user.get(&page).await;
    for text in
        ["morning report", "Active", "30 2 * * *", "Europe/Berlin", "Write the report.", "There are none yet"]
    {
        assert!(shown.shows(text), "{text}: {}", shown.body);
    }
    assert!(!shown.shows("/console/handoffs"), "users have no such page");
    let twice = user.post(LIST, &with(&DAILY, &[("step", "save"), ("previewed", &previewed)])).await;
    assert!(twice.status == 409 && twice.shows("already"), "{}", twice.body);
}

#[tokio::test]
async fn schedule_is_run_suspended_changed_and_deleted() {
    let gateway = Gateway::start().await;
    let admin = gateway.administrator().await;
    let page = create(&admin, &with(&DAILY, &[("user_id", "ada")])).await;
    let id = page.split("id=").nth(1).unwrap().to_owned();
    assert!(admin.get(LIST).await.shows("for <bdi>ada</bdi>"));
    let ran = admin.post("/console/schedules/run", &[("id", &id)]).await;
    assert_eq!((ran.status, ran.header("location")), (303, Some(&*page)));
    let shown = admin.get(&page).await;
    assert!(shown.shows("Pending") && shown.shows("started by a person"), "{}", shown.body);
    assert!(shown.shows("/console/handoffs/"), "its handoff");
    for (on, said) in [("false", "Suspended"), ("true", "Active")] {
        admin.post("/console/schedules/switch", &[("id", &id), ("on", on)]).await;
        assert!(admin.get(&page).await.shows(said), "{said}");
    }
    let form = admin.get(&page.replace("/schedule?", "/edit?")).await;
    assert!(form.shows("value=\"30 2 * * *\"") && form.shows("Write the report."), "{}", form.body);
    let version = hidden(&form.body, "version");
    let fields = with(&DAILY, &[("id", &id), ("version", &version), ("step", "save"), ("missed", "all")]);
    // The timing is the same: no preview is needed, and missed slots are not dropped.
    let saved = admin.post("/console/schedules/edit", &with(&fields, &[("timeout", "1day")])).await;
    assert_eq!(saved.status, 303, "{}", saved.body);
    assert!(admin.get(&page).await.shows("The latest 10 fire"));
    let stale = admin.post("/console/schedules/edit", &fields).await;
    assert!(stale.status == 409 && stale.shows("Begin again"), "{}", stale.body);
    let version = (version.parse::<i64>().unwrap() + 1).to_string();
    let moved = with(&fields, &[("version", &version), ("expression", "0 4 * * *")]);
    let shown = admin.post("/console/schedules/edit", &moved).await;
    assert!(shown.status == 200 && shown.shows("The timing was changed"), "{}", shown.body);
    let previewed = hidden(&shown.body, "previewed");
    let saved = admin.post("/console/schedules/edit", &with(&moved, &[("previewed", &previewed)])).await;
    assert_eq!(saved.status, 303, "{}", saved.body);
    assert!(admin.get(&page).await.shows("0 4 * * *"));
    assert_eq!(admin.post("/console/schedules/delete", &[("id", &id), ("version", "1")]).await.status, 303);
    assert_eq!(admin.get(&page).await.status, 200, "it has another version");
    assert_eq!(admin.post("/console/schedules/delete", &[("id", &id)]).await.status, 303);
    assert_eq!(admin.get(&page).await.status, 404);
}

#[tokio::test]
async fn schedules_of_other_users_are_not_shown() {
    let gateway = Gateway::start().await;
    let admin = gateway.administrator().await;
    let page = create(&admin, &with(&DAILY, &[("user_id", "ada")])).await;
    let id = page.split("id=").nth(1).unwrap().to_owned();
    let eve = gateway.sign_in(&admin.issue_user("eve").await).await;
    for path in [LIST, "/console/schedules?user_id=ada"] {
        assert!(!eve.get(path).await.shows("morning report"), "{path}");
    }
    for path in [page.clone(), page.replace("/schedule?", "/edit?")] {
        assert_eq!(eve.get(&path).await.status, 404, "{path}");
    }
    let save = with(&DAILY, &[("id", &id), ("step", "save")]);
    assert_eq!(eve.post("/console/schedules/edit", &save).await.status, 404);
    for path in ["run", "switch", "delete"] {
        eve.post(&format!("/console/schedules/{path}"), &[("id", &id), ("on", "false")]).await;
    }
    let shown = admin.get(&page).await;
    assert!(shown.shows("Active") && shown.shows("There are none yet"), "{}", shown.body);
}

#[tokio::test]
async fn refused_schedule_is_explained_and_escaped() {
    let gateway = Gateway::start().await;
    let admin = gateway.administrator().await;
    let evil = "\"><script>alert(1)</script>";
    for (field, value, said) in [
        ("expression", evil, "fields"),
        ("expression", "* * *", "this one has 3"),
        ("time_zone", evil, "unknown time zone"),
        ("timing", "interval", "duration"),
        ("timing", "once", "invalid time"),
        ("missed_limit", "many", "not a number"),
        ("timeout", "long", "duration"),
        ("project_id", "no where", "not an id"),
    ] {
        let answer = admin.post(LIST, &with(&DAILY, &[(field, value), ("user_id", "ada")])).await;
        assert_eq!(answer.status, 422, "{field}: {}", answer.body);
        assert!(answer.shows(said) && answer.shows("role=\"alert\""), "{field}: {}", answer.body);
        assert!(!answer.shows("<script>alert"), "{field}");
    }
    let named = with(&DAILY, &[("name", evil), ("prompt", evil), ("user_id", "ada")]);
    let page = create(&admin, &named).await;
    for path in [LIST, &page, &page.replace("/schedule?", "/edit?")] {
        let answer = admin.get(path).await;
        assert!(answer.shows("&lt;script&gt;alert(1)") && !answer.shows("<script>alert"), "{path}");
    }
}

/// The form of a new schedule by keyboard and pointer, wide and at the width of a phone.
#[tokio::test]
async fn browser_creates_a_schedule_and_runs_it() {
    let gateway = Gateway::start().await;
    let browser = Browser::start().await;
    enter(&browser, &gateway).await;
    browser.open(&gateway.url("/console/schedules/new")).await;
    let is_visible = async |css: &str| -> bool {
        let script = format!("return document.querySelector('{css}').checkVisibility()");
        browser.script(&script, vec![]).await == true
    };
    // Only what the chosen timing and payload need is shown.
    assert!(is_visible("#expression").await && !is_visible("#every").await && !is_visible("#at").await);
    assert!(is_visible("#prompt").await && !is_visible("#task_name").await && !is_visible("#job_kind").await);
    browser.choose("#timing", "interval").await;
    assert!(
        !is_visible("#expression").await && is_visible("#every").await && !is_visible("#time_zone").await
    );
    browser.choose("#payload", "job_spec").await;
    assert!(!is_visible("#prompt").await && is_visible("#job_kind").await);
    browser.choose("#timing", "cron").await;
    browser.choose("#payload", "prompt").await;
    browser.fill("#name", "morning report").await;
    browser.fill("#user_id", "ada").await;
    browser.fill("#expression", "30 2 * * *").await;
    browser.fill("#time_zone", "Europe/Berlin").await;
    browser.fill("#prompt", "Write the report.").await;
    screenshot(&browser, "schedule-new").await;
    browser.click("button[value=preview]").await;
    browser.wait_for_text("#firings", "Europe/Berlin").await;
    assert_eq!(browser.count("#firings tbody tr").await, 10);
    screenshot(&browser, "schedule-preview").await;
    browser.click("button[value=save]").await;
    browser.wait_for_text(".flash", "morning report created").await;
    browser.click("form[action$=run] button").await;
    browser.wait_for_text(".flash", "A run was started").await;
    browser.wait_for_text("main", "Pending").await;
    for (width, height) in [(1280, 900), (360, 740)] {
        browser.resize(width, height).await;
        assert!(!browser.overflows().await, "{width}");
        screenshot(&browser, &format!("schedule-{width}")).await;
    }
    browser.click("form[action$=switch] button").await;
    browser.wait_for_text(".facts", "Suspended").await;
    browser.open(&gateway.url(LIST)).await;
    browser.wait_for_text("tbody", "Suspended").await;
    screenshot(&browser, "schedules-360").await;
    // With the keyboard alone, from the list to the form.
    browser.open(&gateway.url("/console/schedules/new")).await;
    browser.script("document.querySelector('#name').focus()", vec![]).await;
    browser.type_text("by keyboard").await;
    browser.press_tab().await;
    browser.type_text("ada").await;
    for _ in 0..3 {
        browser.press_tab().await;
    }
    assert!(browser.has_focus("#expression").await);
    browser.type_text("0 9 * * MON").await;
    browser.press_tab().await;
    browser.press_tab().await;
    browser.press_tab().await;
    assert!(browser.has_focus("#prompt").await, "hidden fields are no stops");
    browser.type_text("Hello").await;
    browser.script("document.querySelector('#name').focus()", vec![]).await;
    browser.press_enter().await;
    browser.wait_for_text("#firings", "UTC").await;
    assert_no_faults(&browser).await;
}

/// Keeps a picture for people where `SCREENSHOTS` names a folder.
async fn screenshot(browser: &Browser, name: &str) {
    if let Some(folder) = std::env::var_os("SCREENSHOTS") {
        browser.screenshot(&Path::new(&folder).join(format!("{name}.png"))).await;
    }
}
