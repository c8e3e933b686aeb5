//! The connection to NATS: the same settings for every program.

use broker::{Auth, Options, Tls};
use subjects::streams::Layout;

use crate::{Checker, Error, Text, checker::given};

/// What a program's `nats` section has for the connection.
#[derive(Clone, Copy, Debug)]
pub struct NatsConnection<'a> {
    pub url: &'a Text,
    pub creds_file: Option<&'a Text>,
    pub nkey_file: Option<&'a Text>,
    pub inbox_prefix: &'a Text,
    pub layout: &'a Text,
    pub tls: &'a NatsTls,
}

crate::section! {
    pub struct NatsTls {
        /// Whether to refuse a server without TLS.
        required: Text = "false",
        /// Certificates of the authorities to trust, in PEM.
        ca_file: Option<Text>,
        /// Client certificate, in PEM.
        cert_file: Option<Text>,
        /// Key of the client certificate, in PEM.
        key_file: Option<Text>,
    }
}

/// Checks the connection's settings. `name` is what the server shows for the connection.
pub fn nats_options(
    check: &Checker<'_>,
    connection: NatsConnection<'_>,
    name: String,
) -> Result<Options, Error> {
    let NatsConnection { url, creds_file, nkey_file, inbox_prefix, layout, tls } = connection;
    if url.0.trim().is_empty() {
        return Err(check.wrong("nats.url", "", "a server, as in nats://127.0.0.1:4222"));
    }
    let auth = match (given(creds_file), given(nkey_file)) {
        (Some(_), Some(_)) => {
            let problem = "nats.creds_file is set too; a connection has one identity";
            return Err(check.refuse("nats.nkey_file", problem));
        }
        (Some(creds), None) => Auth::Creds(check.file("nats.creds_file", creds)?),
        (None, Some(nkey)) => Auth::Nkey(check.file("nats.nkey_file", nkey)?),
        (None, None) => Auth::None,
    };
    if !broker::is_inbox_prefix(&inbox_prefix.0) {
        let right = "words between dots, as in _INBOX_pma";
        return Err(check.wrong("nats.inbox_prefix", &inbox_prefix.0, right));
    }
    let parsed: Result<Layout, _> = layout.0.parse();
    Ok(Options {
        url: url.0.clone(),
        name,
        auth,
        tls: check_tls(check, tls)?,
        inbox_prefix: Some(inbox_prefix.0.clone()),
        layout: parsed.map_err(|_| check.wrong("nats.layout", &layout.0, "shared or by_role"))?,
    })
}

fn check_tls(check: &Checker<'_>, tls: &NatsTls) -> Result<Tls, Error> {
    let certificate = check.optional_file("nats.tls.cert_file", tls.cert_file.as_ref())?;
    let key = check.optional_file("nats.tls.key_file", tls.key_file.as_ref())?;
    let identity = match (certificate, key) {
        (Some(certificate), Some(key)) => Some((certificate, key)),
        (None, None) => None,
        (Some(_), None) => {
            return Err(check.refuse("nats.tls.cert_file", "needs nats.tls.key_file beside it"));
        }
        (None, Some(_)) => {
            return Err(check.refuse("nats.tls.key_file", "needs nats.tls.cert_file beside it"));
        }
    };
    Ok(Tls {
        required: check.boolean("nats.tls.required", &tls.required)?,
        ca_file: check.optional_file("nats.tls.ca_file", tls.ca_file.as_ref())?,
        identity,
    })
}
