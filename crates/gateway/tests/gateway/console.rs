//! The console of a real gateway, used by a browser and by an unauthenticated client.

pub(crate) mod browser;
mod chat;
mod chat_browser;
mod forgery;
mod memory;
mod pages;
mod schedules;
mod secrets;
mod sessions;
mod skills;
pub(crate) mod support;
mod work;
mod work_browser;
