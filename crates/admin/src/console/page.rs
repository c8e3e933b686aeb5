//! The frame of every page: document, navigation, title and messages.

use axum::response::{IntoResponse, Response};
use maud::{DOCTYPE, Markup, html};

use super::{HOME, assets, components::logo, flash, form::CSRF, session::Session};

/// A section of the navigation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Section {
    Overview,
    Chat,
    Threads,
    Work,
    Dead,
    Projects,
    Tasks,
    Workflows,
    Jobs,
    Nodes,
    Tools,
    Quarantine,
    Schedules,
    Skills,
    Memory,
    Tokens,
    Leases,
    Egress,
    Servers,
    Rules,
    Settings,
    Audit,
}

impl Section {
    const ALL: [Self; 22] = [
        Self::Overview,
        Self::Chat,
        Self::Threads,
        Self::Projects,
        Self::Tasks,
        Self::Workflows,
        Self::Work,
        Self::Dead,
        Self::Jobs,
        Self::Nodes,
        Self::Schedules,
        Self::Tools,
        Self::Quarantine,
        Self::Servers,
        Self::Skills,
        Self::Memory,
        Self::Tokens,
        Self::Leases,
        Self::Egress,
        Self::Rules,
        Self::Settings,
        Self::Audit,
    ];

    pub(super) fn address(self) -> &'static str {
        match self {
            Self::Overview => HOME,
            Self::Chat => "/console/chat",
            Self::Threads => "/console/threads",
            Self::Work => "/console/handoffs",
            Self::Dead => "/console/dead",
            Self::Projects => "/console/projects",
            Self::Tasks => "/console/tasks",
            Self::Workflows => "/console/workflows",
            Self::Jobs => "/console/jobs",
            Self::Nodes => "/console/nodes",
            Self::Tools => "/console/tools",
            Self::Quarantine => "/console/quarantine",
            Self::Schedules => "/console/schedules",
            Self::Skills => "/console/skills",
            Self::Memory => "/console/memory",
            Self::Tokens => "/console/tokens",
            Self::Leases => "/console/leases",
            Self::Egress => "/console/egress",
            Self::Servers => "/console/servers",
            Self::Rules => "/console/rules",
            Self::Settings => "/console/settings",
            Self::Audit => "/console/audit",
        }
    }

    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Overview => "Overview",
            Self::Chat => "Chat",
            Self::Threads => "Threads",
            Self::Work => "Work",
            Self::Dead => "Dead letters",
            Self::Projects => "Projects",
            Self::Tasks => "Tasks",
            Self::Workflows => "Workflows",
            Self::Jobs => "Jobs",
            Self::Nodes => "Nodes",
            Self::Tools => "Tools",
            Self::Quarantine => "Quarantine",
            Self::Schedules => "Schedules",
            Self::Skills => "Skills",
            Self::Memory => "Memory",
            Self::Tokens => "Tokens",
            Self::Leases => "Leases",
            Self::Egress => "Egress",
            Self::Servers => "Servers",
            Self::Rules => "Rules",
            Self::Settings => "Settings",
            Self::Audit => "Audit",
        }
    }

    /// Returns whether users, who have only their own threads, schedules and servers, have this section.
    fn is_for_users(self) -> bool {
        match self {
            Self::Overview
            | Self::Chat
            | Self::Threads
            | Self::Schedules
            | Self::Tools
            | Self::Quarantine
            | Self::Servers => true,
            Self::Work
            | Self::Dead
            | Self::Projects
            | Self::Tasks
            | Self::Workflows
            | Self::Jobs
            | Self::Nodes
            | Self::Skills
            | Self::Memory
            | Self::Tokens
            | Self::Leases
            | Self::Egress
            | Self::Rules
            | Self::Settings
            | Self::Audit => false,
        }
    }
}

/// Renders a page with navigation, for a signed-in session.
pub(super) fn page(session: &Session, section: Option<Section>, title: &str, body: &Markup) -> Response {
    with_actions(session, section, title, &html! {}, body)
}

/// Like [`page`], with actions beside the title.
pub(super) fn with_actions(
    session: &Session,
    section: Option<Section>,
    title: &str,
    actions: &Markup,
    body: &Markup,
) -> Response {
    let who = session.actor.user().unwrap_or("administrator");
    let sections = Section::ALL.into_iter().filter(|it| session.actor.is_admin() || it.is_for_users());
    let inner = html! {
        a .skip href="#main" { "Skip to content" }
        div .shell {
            header .side {
                a .brand href=(HOME) { (logo()) span { "Cynode" small { "gateway console" } } }
                nav aria-label="Console" {
                    ul {
                        @for it in sections {
                            li {
                                a href=(it.address()) aria-current=[(section == Some(it)).then_some("page")] {
                                    (it.title())
                                }
                            }
                        }
                    }
                }
                form .who method="post" action="/console/logout" {
                    input type="hidden" name=(CSRF) value=(session.csrf);
                    span { "Signed in as " strong { (who) } }
                    button .button .quiet .small type="submit" { "Sign out" }
                }
            }
            main #main tabindex="-1" {
                @if let Some(message) = &session.flash {
                    @let role = if message.good { "status" } else { "alert" };
                    p .flash .bad[!message.good] role=(role) {
                        (message.text)
                    }
                }
                div .title { h1 { (title) } @if !actions.0.is_empty() { div .actions { (actions) } } }
                (body)
            }
        }
    };
    let mut response = document(title, "", &inner).into_response();
    if session.flash.is_some() {
        flash::clear(&mut response);
    }
    response
}

/// Renders a page without navigation, for clients without a session.
pub(super) fn public_page(title: &str, body: &Markup) -> Response {
    document(title, "bare", &html! { main #main .card { (body) } }).into_response()
}

fn document(title: &str, class: &str, inner: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " · Cynode gateway" }
                link rel="icon" href=(assets::ICON.path);
                link rel="stylesheet" href=(assets::STYLE.path);
                script src=(assets::SCRIPT.path) defer {}
            }
            body class=[(!class.is_empty()).then_some(class)] { (inner) }
        }
    }
}
