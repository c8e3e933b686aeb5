//! A headless Chromium for tests of the console.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Mutex,
    time::Duration,
};

use fantoccini::{
    Client, ClientBuilder, Locator,
    actions::{InputSource, KeyAction, KeyActions},
    elements::Element,
    key::Key,
};
use hyper_util::client::legacy::connect::HttpConnector;
use nix::unistd::geteuid;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{Process, binaries::on_path, eventually, eventually_within};

mod console;

pub use console::Message;

const START_TIMEOUT: Duration = Duration::from_secs(60);

/// A headless Chromium with its own profile, driven by chromedriver. Both are killed when it is dropped.
///
/// Elements are waited for before they are clicked, filled or read. The browser resolves no name except
/// `localhost`.
#[derive(Debug)]
pub struct Browser {
    client: Client,
    messages: Mutex<Vec<Message>>,
    // Dropped in this order: the processes must end before their folder is deleted.
    _driver: Driver,
    folder: TempDir,
}

/// chromedriver and the processes that it started.
#[derive(Debug)]
struct Driver(Process);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.kill_all();
    }
}

impl Browser {
    pub async fn start() -> Self {
        let (chromium, chromedriver) = find().expect(
            "no Chromium with chromedriver on this machine: `scripts/get_system_packages.py` installs them, \
             or CHROMIUM and CHROMEDRIVER name the programs",
        );
        let folder = tempfile::tempdir().expect("a folder for the browser");
        let (driver, port) = start_driver(&chromedriver, &folder.path().join("chromedriver.log")).await;
        let Value::Object(wanted) = capabilities(&chromium, folder.path()) else { unreachable!("it is one") };
        let client = ClientBuilder::new(HttpConnector::new())
            .capabilities(wanted)
            .connect(&format!("http://127.0.0.1:{port}"))
            .await
            .expect("chromedriver starts Chromium");
        Self { client, messages: Mutex::default(), _driver: driver, folder }
    }

    pub async fn open(&self, url: &str) {
        self.client.goto(url).await.unwrap_or_else(|error| panic!("{url}: {error}"));
    }

    /// Returns the current URL.
    pub async fn url(&self) -> String {
        self.client.current_url().await.expect("the browser answers").to_string()
    }

    /// Waits for an element and returns it, for actions that have no helper here.
    pub async fn wait_for(&self, css: &str) -> Element {
        eventually(css, async || self.client.find(Locator::Css(css)).await.ok()).await
    }

    /// Waits until there is no such element.
    pub async fn wait_for_no(&self, css: &str) {
        eventually(&format!("no {css}"), async || (self.count(css).await == 0).then_some(())).await;
    }

    /// Waits until the visible text of the first such element contains this.
    pub async fn wait_for_text(&self, css: &str, wanted: &str) {
        eventually(&format!("{css} with {wanted:?}"), async || {
            let shown = self.client.find(Locator::Css(css)).await.ok()?.text().await.ok()?;
            shown.contains(wanted).then_some(())
        })
        .await;
    }

    /// Returns the visible text of the first such element.
    pub async fn text(&self, css: &str) -> String {
        let found = self.wait_for(css).await;
        found.text().await.unwrap_or_else(|error| panic!("{css}: {error}"))
    }

    /// Returns an attribute of the first such element.
    pub async fn attribute(&self, css: &str, name: &str) -> Option<String> {
        let found = self.wait_for(css).await;
        found.attr(name).await.unwrap_or_else(|error| panic!("{css}: {error}"))
    }

    /// Returns the current number of such elements. Does not wait.
    pub async fn count(&self, css: &str) -> usize {
        let found = self.client.find_all(Locator::Css(css)).await;
        found.unwrap_or_else(|error| panic!("{css}: {error}")).len()
    }

    /// Replaces the text of a field.
    pub async fn fill(&self, css: &str, text: &str) {
        let field = self.wait_for(css).await;
        field.clear().await.unwrap_or_else(|error| panic!("{css}: {error}"));
        field.send_keys(text).await.unwrap_or_else(|error| panic!("{css}: {error}"));
    }

    /// Selects the option of a `select` by its value.
    pub async fn choose(&self, css: &str, value: &str) {
        let field = self.wait_for(css).await;
        field.select_by_value(value).await.unwrap_or_else(|error| panic!("{css}: {error}"));
    }

    pub async fn click(&self, css: &str) {
        // Retries, since the element may be covered or replaced for a moment.
        eventually(&format!("a click on {css}"), async || {
            self.client.find(Locator::Css(css)).await.ok()?.click().await.ok()
        })
        .await;
    }

    pub async fn press_tab(&self) {
        self.press(Key::Tab.into()).await;
    }

    pub async fn press_enter(&self) {
        self.press(Key::Enter.into()).await;
    }

    /// Presses and releases a key on the focused element. Keys without a character are in
    /// `fantoccini::key::Key`.
    pub async fn press(&self, key: char) {
        let keys = KeyActions::new("keyboard".to_owned());
        let keys = keys.then(KeyAction::Down { value: key }).then(KeyAction::Up { value: key });
        self.client.perform_actions(keys).await.expect("a key can be pressed");
    }

    /// Types into the focused element.
    pub async fn type_text(&self, text: &str) {
        for key in text.chars() {
            self.press(key).await;
        }
    }

    /// Asks the browser whether the first such element has the focus.
    pub async fn has_focus(&self, css: &str) -> bool {
        let script = "return document.querySelector(arguments[0]) === document.activeElement";
        self.script(script, vec![json!(css)]).await == json!(true)
    }

    /// Runs a script and returns its result. Its arguments are in `arguments`. The page's
    /// Content-Security-Policy does not apply to it.
    pub async fn script(&self, script: &str, arguments: Vec<Value>) -> Value {
        self.client.execute(script, arguments).await.unwrap_or_else(|error| panic!("{script}: {error}"))
    }

    /// Emulates the preference for a dark or light color scheme.
    pub async fn prefer_dark(&self, dark: bool) {
        let scheme = if dark { "dark" } else { "light" };
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        let parameters = json!({"cmd": "Emulation.setEmulatedMedia", "params": {"features": features}});
        self.client.issue_cmd(console::Extension("goog/cdp/execute", parameters)).await.expect("a scheme");
    }

    /// Sets the size of the viewport.
    pub async fn resize(&self, width: u32, height: u32) {
        let metrics = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        let parameters = json!({"cmd": "Emulation.setDeviceMetricsOverride", "params": metrics});
        self.client.issue_cmd(console::Extension("goog/cdp/execute", parameters)).await.expect("a new size");
    }

    /// Asks the browser whether the page scrolls horizontally.
    pub async fn overflows(&self) -> bool {
        let page = "const page = document.documentElement; return page.scrollWidth > page.clientWidth";
        self.script(page, vec![]).await == json!(true)
    }

    /// Writes a screenshot to a PNG file.
    pub async fn screenshot(&self, path: &Path) {
        let image = self.client.screenshot().await.expect("the browser shows what it has");
        fs::write(path, image).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }

    /// Returns all console messages since the browser started.
    pub async fn messages(&self) -> Vec<Message> {
        let new = console::read(&self.client).await;
        let mut messages = self.messages.lock().unwrap();
        messages.extend(new);
        messages.clone()
    }

    /// Returns the violations of the Content-Security-Policy.
    pub async fn violations(&self) -> Vec<Message> {
        self.messages().await.into_iter().filter(Message::is_violation).collect()
    }

    /// Returns script errors, failed requests and policy violations.
    pub async fn errors(&self) -> Vec<Message> {
        self.messages().await.into_iter().filter(Message::is_error).collect()
    }

    /// Returns the folder of the browser's profile.
    pub fn profile(&self) -> PathBuf {
        self.folder.path().join("profile")
    }

    /// Returns the WebDriver session, for actions that have no helper here.
    pub fn client(&self) -> &Client {
        &self.client
    }
}

/// Starts chromedriver and returns its port. It chooses one that is free for IPv4, and ends if the same is
/// not free for IPv6; then it is started again.
async fn start_driver(chromedriver: &Path, log: &Path) -> (Driver, u16) {
    for _ in 0..10 {
        let mut driver = Driver(Process::start(chromedriver, &["--port=0".to_owned()], &[], log));
        let started = eventually_within(START_TIMEOUT, "chromedriver tells its port or ends", || {
            let is_running = driver.0.is_running();
            let text = fs::read_to_string(log).unwrap_or_default();
            let port = text.rsplit_once("started successfully on port ");
            let port = port.and_then(|(_, rest)| rest.split_once('.')?.0.parse::<u16>().ok());
            std::future::ready(port.map(Some).or((!is_running).then_some(None)))
        })
        .await;
        if let Some(port) = started {
            return (driver, port);
        }
    }
    panic!("chromedriver does not start:\n{}", fs::read_to_string(log).unwrap_or_default());
}

/// Returns whether Chromium and chromedriver are installed.
pub fn browser_available() -> bool {
    find().is_some()
}

fn find() -> Option<(PathBuf, PathBuf)> {
    let chromium = on_path("CHROMIUM", &["chromium", "chromium-browser", "google-chrome"])?;
    Some((chromium, on_path("CHROMEDRIVER", &["chromedriver"])?))
}

fn capabilities(chromium: &Path, folder: &Path) -> Value {
    let profile = format!("--user-data-dir={}", folder.join("profile").display());
    let mut arguments = vec![
        "--headless=new",
        "--disable-gpu",
        "--disable-quic",
        "--disable-dev-shm-usage",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--window-size=1280,900",
        "--force-prefers-reduced-motion",
        // Prevents requests to other machines.
        "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE localhost, EXCLUDE 127.0.0.1",
        // Makes Chromium exit together with chromedriver, even if that is killed.
        "--remote-debugging-pipe",
        profile.as_str(),
    ];
    if geteuid().is_root() {
        arguments.push("--no-sandbox");
    }
    json!({
        "browserName": "chrome",
        "acceptInsecureCerts": true,
        "goog:chromeOptions": {"binary": chromium, "args": arguments},
        "goog:loggingPrefs": {"browser": "ALL"},
    })
}
