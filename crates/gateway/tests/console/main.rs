//! The console of a real gateway, as a browser and as a stranger's program meet it.

mod browser; // what administrators do, in Chromium
mod forgery; // requests that nobody meant
mod pages; // what is shown, to whom
mod secrets; // what is not shown
mod sessions; // coming in, going out
mod support;
mod work; // handoffs and dead letters, with and without NATS
mod work_browser; // the same in Chromium
