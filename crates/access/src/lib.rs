//! Who is calling the gateway.
//!
//! - [`tokens`]: tokens of agents, users and administrators
//! - [`leases`]: leases, which say on whose behalf an agent acts
//! - [`admin_token`]: the first administrator's token, in a file
//! - [`unauthenticated`]: rate limits by address for clients without a valid token

pub mod admin_token;
pub mod leases;
mod row_cache;
pub mod tokens;
pub mod unauthenticated;
