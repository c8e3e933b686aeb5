//! Several gateways on one PostgreSQL, and a store that fails while calls run: no call is lost, and no call
//! that reached its tool is reported as denied.

mod admin_token;
mod outage;
mod sealed;
pub(crate) mod support;
mod together;
mod waiting;
