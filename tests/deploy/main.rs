//! Every file in `deploy/` is loaded by the program it is for, and does what it says it does.

mod files; // configuration and error pages
mod identities; // everyone can do its work
mod refusals; // and nothing else
mod stage; // NATS as it is deployed
mod tls; // nobody gets in without a certificate, and three nodes are one
