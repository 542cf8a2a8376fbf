//! Tenants in the switch's messages: counters as messages, objects and rows.

use super::text::tenant_to_text;
use crate::output::Rows;
use datapath::{Switch, TenantInfo};
use grpc::admin::AdminStats;
use messages::sluice::v1 as pb;
use serde_json::{Value, json};
use traffic::TenantConfig;

/// Reads all tenants of a switch.
pub fn collect_tenants(switch: &Switch) -> Vec<pb::Tenant> {
    let count = |count: traffic::Count| Some(pb::Count { packets: count.packets, bytes: count.bytes });
    let tenant = |TenantInfo { name, config, members, statistics }: TenantInfo| pb::Tenant {
        name,
        config: tenant_to_text(&config),
        members: members.iter().map(ToString::to_string).collect(),
        depth: count(statistics.depth),
        highest: count(statistics.highest),
        dropped_limit: count(statistics.over_limit),
        dropped_buffer: count(statistics.no_room),
    };
    switch.tenant_infos().into_iter().map(tenant).collect()
}

/// Returns tenants as objects.
pub fn tenants_to_json(stats: &AdminStats) -> Value {
    let count = |count: Option<pb::Count>| {
        let count = count.unwrap_or_default();
        json!({ "packets": count.packets, "bytes": count.bytes })
    };
    let tenant = |t: &pb::Tenant| {
        json!({
            "name": t.name,
            "config": serde_json::from_str::<Value>(&t.config).unwrap_or_else(|_| t.config.as_str().into()),
            "members": t.members, "depth": count(t.depth), "highest": count(t.highest),
            "dropped": { "limit": count(t.dropped_limit), "buffer": count(t.dropped_buffer) },
        })
    };
    stats.tenants.iter().map(tenant).collect()
}

/// Returns a table with a row for each tenant.
pub fn tenant_rows(stats: &AdminStats) -> Rows {
    let mut table = Rows::new(&[
        "tenant",
        "packets",
        "bytes",
        "highest",
        "limit drops",
        "buffer drops",
        "limit",
        "reserved",
        "alpha",
        "queues of",
    ]);
    table.align_right(1);
    for tenant in &stats.tenants {
        let packets = |count: Option<pb::Count>| count.unwrap_or_default().packets.to_string();
        let depth = tenant.depth.unwrap_or_default();
        let mut row = vec![tenant.name.clone(), depth.packets.to_string(), depth.bytes.to_string()];
        row.extend([tenant.highest, tenant.dropped_limit, tenant.dropped_buffer].map(packets));
        row.extend(match serde_json::from_str::<TenantConfig>(&tenant.config) {
            Ok(config) => [limit(&config), config.reserved.to_string(), config.alpha.to_string()],
            // A newer switch may have settings that this command does not know.
            Err(_) => [tenant.config.clone(), "-".to_string(), "-".to_string()],
        });
        row.push(if tenant.members.is_empty() { "-".to_string() } else { tenant.members.join(", ") });
        table.add_row(row);
    }
    table
}

fn limit(config: &TenantConfig) -> String {
    let packets = config.limit.packets.map(|packets| format!("{packets} packets"));
    let all = [packets, config.limit.bytes.map(|bytes| bytes.to_string())];
    let all: Vec<String> = all.into_iter().flatten().collect();
    if all.is_empty() { "-".to_string() } else { all.join(", ") }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use expect_test::expect;

    /// Returns a tenant that has refused `refused` packets.
    pub fn tenant(refused: u64) -> pb::Tenant {
        let count = |packets| Some(pb::Count { packets, bytes: 100 * packets });
        pb::Tenant {
            name: "red".into(),
            config: r#"{"limit":{"packets":2000,"bytes":"1MB"},"reserved":100,"alpha":0.5}"#.into(),
            members: vec!["port 3".into(), "the link at port 10 of device 1".into()],
            depth: count(7),
            highest: count(90),
            dropped_limit: count(refused),
            dropped_buffer: count(refused / 2),
        }
    }

    #[test]
    fn each_tenant_has_a_row_and_an_object() {
        let other = pb::Tenant { name: "blue".into(), config: "{}".into(), ..Default::default() };
        let newer = pb::Tenant { name: "new".into(), config: r#"{"colour":1}"#.into(), ..Default::default() };
        let stats = AdminStats { tenants: vec![tenant(40), other, newer], ..Default::default() };
        expect![[r#"
            tenant  packets  bytes  highest  limit drops  buffer drops              limit  reserved  alpha                                queues of
            red           7    700       90           40            20  2000 packets, 1MB       100    0.5  port 3, the link at port 10 of device 1
            blue          0      0        0            0             0                  -         0      1                                        -
            new           0      0        0            0             0       {"colour":1}         -      -                                        -"#]]
        .assert_eq(&tenant_rows(&stats).trim_fmt());
        let objects = tenants_to_json(&stats);
        assert_eq!(objects[0]["config"]["limit"]["bytes"], "1MB");
        assert_eq!(objects[0]["dropped"]["limit"], json!({ "packets": 40, "bytes": 4000 }));
        assert_eq!((&objects[1]["members"], &objects[2]["config"]["colour"]), (&json!([]), &json!(1)));
    }
}
