//! What the admin service of a running switch does: the server's side of `sluice stats`, `load`, `trace`, `capture`.
//!
//! Threads: called on blocking threads of the server, several at once.

use crate::live::Tracer;
use crate::stats;
use control::control::Losses;
use control::pipeline::ForwardingConfig;
use control::reconcile::Report;
use datapath::Switch;
use datapath::tap::{TapConfig, TappedFrame};
use grpc::Handle;
use grpc::admin::{AdminStats, Operator, Stream};
use grpc::proto::sluice::v1 as pb;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Frames of one message of a capture.
const FRAMES_MAX: usize = 256;
/// How often a stream without packets looks whether its client is there.
const LOOK: Duration = Duration::from_millis(100);

/// A switch and its control plane.
pub struct SwitchOperator {
    /// Packets.
    pub switch: Arc<Switch>,
    /// Programs and entries.
    pub handle: Arc<Handle>,
}

impl Operator for SwitchOperator {
    fn stats(&self) -> AdminStats {
        stats::collect(&self.switch)
    }

    fn load(&self, request: pb::LoadRequest) -> Result<pb::LoadResponse, String> {
        let start = Instant::now();
        let config = ForwardingConfig { device_config: request.program.clone(), ..ForwardingConfig::default() };
        let device = request.device_id;
        let report = self.handle.with(|control| {
            if !request.force && control.has_primary(device).map_err(|e| e.message)? {
                return Err(format!(
                    "a controller is primary for device {device} and would not know; --force replaces its program all the same"
                ));
            }
            match request.state() {
                pb::load_request::State::Fresh => control.load(device, config).map(|()| Report::default()),
                pb::load_request::State::KeepAll => control.replace(device, config, Losses::Refused),
                pb::load_request::State::KeepWhatFits => control.replace(device, config, Losses::Accepted),
            }
            .map_err(|e| e.message)
        })?;
        let took = start.elapsed();
        tracing::info!(device, took_us = took.as_micros() as u64, "program replaced by the operator");
        Ok(response(report, took.as_micros() as u64))
    }

    fn trace(&self, request: pb::TraceRequest, to: &Stream<pb::TraceResponse>) -> Result<(), String> {
        let device = request.device_id;
        let config = self.handle.with(|control| control.running_config(device)).map_err(|e| e.message)?;
        let (config, pipeline) = config.zip(self.switch.pipeline_of(device)).ok_or("no program runs")?;
        let tracer = Tracer::new(pipeline, &config.device_config, &request.filter, self.switch.now_us())?;
        let send = |port, frame: &[u8]| -> Result<bool, String> {
            Ok(tracer.trace(port, frame, request.tree)?.into_iter().all(|trace| to.send(trace)))
        };
        if !request.frame.is_empty() {
            let port = request.port.ok_or("a frame needs the port that it comes from")?;
            return send(port, &request.frame).map(drop);
        }
        let tapped = self.switch.tap(TapConfig {
            device: Some(device),
            ports: request.port.into_iter().collect(),
            snap_length: 0,
            received_only: true,
        });
        let mut left = request.count.max(1);
        while left > 0 && !to.is_closed() {
            let Some(frame) = tapped.next_within(LOOK) else { continue };
            if tracer.wants(frame.port, &frame.data) {
                if !send(frame.port, &frame.data)? {
                    break;
                }
                left -= 1;
            }
        }
        Ok(())
    }

    fn capture(&self, request: pb::CaptureRequest, to: &Stream<pb::CaptureResponse>) -> Result<(), String> {
        let tapped = self.switch.tap(TapConfig {
            device: Some(request.device_id).filter(|id| *id != 0),
            ports: request.ports.into_iter().collect(),
            snap_length: request.snap_length,
            received_only: false,
        });
        let frame = |f: TappedFrame| pb::capture_response::Frame {
            port: f.port,
            sent: f.sent,
            time_ns: f.time.as_nanos() as u64,
            length: f.length,
            data: f.data,
        };
        while !to.is_closed() {
            let Some(first) = tapped.next_within(LOOK) else { continue };
            let mut frames = vec![frame(first)];
            while let Some(next) = tapped.next_within(Duration::ZERO) {
                frames.push(frame(next));
                if frames.len() == FRAMES_MAX {
                    break;
                }
            }
            to.send(pb::CaptureResponse { frames, lost: tapped.lost() });
        }
        Ok(())
    }
}

fn response(report: Report, took_us: u64) -> pb::LoadResponse {
    let outcome = |o: control::reconcile::Outcome| pb::Outcome {
        kind: o.object.kind.noun().to_string(),
        name: o.object.name,
        fate: o.object.fate.name().to_string(),
        notes: o.object.notes,
        carried: o.carried,
        lost: o.lost,
        reason: o.reason.unwrap_or_default(),
    };
    pb::LoadResponse {
        outcomes: report.outcomes.into_iter().map(outcome).collect(),
        replication: report.replication,
        replication_lost: report.replication_lost,
        took_us,
    }
}
