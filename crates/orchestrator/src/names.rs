//! Names that clients choose: of threads, requests, projects and users. They are stored as they are, so none
//! may hold a secret.

use contract::thread::MAX_NAME_BYTES;

use crate::error::ApiError;

/// Checks the name of a thread or a request. `from` is the header or field that it was read from.
pub(crate) fn check(from: &str, name: &str) -> Result<(), ApiError> {
    if name.len() > MAX_NAME_BYTES || name.chars().any(char::is_control) {
        let message =
            format!("{from} is a name of at most {MAX_NAME_BYTES} bytes without control characters.");
        return Err(ApiError::invalid(from, message));
    }
    refuse_secret(from, name)
}

/// Refuses a name that contains a secret, without repeating it.
pub(crate) fn refuse_secret(from: &str, name: &str) -> Result<(), ApiError> {
    match secrets::find_in_name(name) {
        None => Ok(()),
        Some(kind) => {
            let message = format!(
                "{from} contains a secret ({kind}). Names are stored as they are: choose one without it, \
                 and replace the secret if others may have seen it."
            );
            Err(ApiError::invalid(from, message))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_a_secret_is_refused_and_not_repeated() {
        let secret = format!("sk-{}", "Q7rT2mZx9LkW4vNc8BdY5hJp");
        for name in [secret.clone(), format!("chat-{secret}"), "password=hunter2".to_owned()] {
            let refused = check("x-cynode-thread", &name).unwrap_err();
            assert_eq!((refused.status.as_u16(), refused.param.as_deref()), (400, Some("x-cynode-thread")));
            assert!(!refused.message.contains("Q7rT2") && !refused.message.contains("hunter2"), "{refused}");
        }
        for name in ["my thread", "oidc:bob@example.com", "0198c0de-0000-7000-8000-000000000001"] {
            assert_eq!(check("x-cynode-thread", name), Ok(()));
        }
    }
}
