//! Each gateway has its own token file.

use std::fs;

use testkit::Postgres;

use super::support::gateways;

/// What happens to the token file of one gateway does not affect the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deleting_a_token_file_on_postgres_revokes_only_that_token() {
    let postgres = Postgres::start();
    let mut gateways = gateways(2, &postgres.database(), &[]).await;
    let (other, old) = (gateways[1].admin_token(), gateways[0].admin_token());
    for rotate in [false, true] {
        let before = gateways[0].admin_token();
        if rotate {
            gateways[0].must("POST", "/api/v1/tokens/rotate-admin", None).await;
        } else {
            fs::remove_file(gateways[0].admin_token_file()).unwrap();
            gateways[0].start_again().await;
        }
        let now = gateways[0].admin_token();
        // At both gateways at once.
        for gateway in &gateways {
            for (token, expected) in [(&old, 401), (&before, 401), (&now, 200), (&other, 200)] {
                assert_eq!(gateway.ask_as(token, "GET", "/api/v1/me", None).await.status, expected);
            }
        }
    }
}
