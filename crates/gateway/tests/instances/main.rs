//! Several gateways on one PostgreSQL, and a store that fails while calls run: no call is lost, and none that reached its
//! tool is ever called denied.

mod admin_token; // a token file for each gateway
mod outage; // the store is away, or slow, when a call ends
mod support; // gateways that share a database
mod together; // several gateways at work
mod waiting; // calls that wait for one with their key
