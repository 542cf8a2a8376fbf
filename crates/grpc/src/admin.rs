//! The admin service: the switch's counters for its operator (`proto/sluice/v1/admin.proto`).
//!
//! Knows nothing of the switch: whoever serves gives a [`StatsSource`], which is called on a blocking thread for each
//! request, because it may wait for a program change to end.
//!
//! Tests: below, through a socket; `tests/py/test_cli.py` with the real switch.

use crate::proto::sluice::v1 as pb;
use pb::admin_server::{Admin, AdminServer};
use std::sync::Arc;
use tonic::{Request, Response, Status};

/// The counters of a moment.
pub type AdminStats = pb::StatsResponse;

/// Reads the counters.
pub type StatsSource = Arc<dyn Fn() -> AdminStats + Send + Sync>;

/// The service over a source.
pub struct AdminService {
    source: StatsSource,
}

impl AdminService {
    /// For a server's router.
    pub fn server(source: StatsSource) -> AdminServer<AdminService> {
        AdminServer::new(AdminService { source })
    }
}

#[tonic::async_trait]
impl Admin for AdminService {
    async fn stats(&self, _request: Request<pb::StatsRequest>) -> Result<Response<AdminStats>, Status> {
        let source = Arc::clone(&self.source);
        let stats = tokio::task::spawn_blocking(move || source()).await;
        stats.map(Response::new).map_err(|_| Status::internal("the counters could not be read"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Handle;
    use control::Control;
    use pb::admin_client::AdminClient;

    #[test]
    fn answers_beside_p4runtime_with_what_the_source_says_now() {
        let calls = Arc::new(std::sync::atomic::AtomicU64::new(0));
        let counted = Arc::clone(&calls);
        let source: StatsSource = Arc::new(move || AdminStats {
            uptime_us: counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1,
            drops: vec![pb::Drop { reason: "no such port".to_string(), packets: 3 }],
            ..AdminStats::default()
        });
        let address = "127.0.0.1:0".parse().unwrap();
        let options = crate::ServeOptions { stats: Some(source), ..Default::default() };
        let server = crate::serve_with(address, Handle::new(Control::new()), options).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let url = format!("http://{}", server.address());
        runtime.block_on(async {
            let mut client = AdminClient::connect(url.clone()).await.unwrap();
            let first = client.stats(pb::StatsRequest {}).await.unwrap().into_inner();
            let second = client.stats(pb::StatsRequest {}).await.unwrap().into_inner();
            assert_eq!((first.uptime_us, second.uptime_us), (1, 2));
            assert_eq!(second.drops, [pb::Drop { reason: "no such port".to_string(), packets: 3 }]);
        });
        drop(server);
        assert_eq!(calls.load(std::sync::atomic::Ordering::Relaxed), 2);
    }
}
