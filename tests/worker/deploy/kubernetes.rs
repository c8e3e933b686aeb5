//! The chart: Kubernetes accepts its manifests, and our programs accept the values in them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use serde_json::{Value, json};
use subjects::{
    Kind, Role,
    streams::{self, Layout},
};
use testkit::{deploy_linter, run};

use super::{chart::manifests, settings};

fn all() -> Vec<Value> {
    all_with(|_| {})
}

/// Everything that the orchestrator can have besides its API.
fn open_door(values: &mut Value) {
    let door = &mut values["orchestrator"];
    door["hosts"] = json!(["chat.example.org"]);
    door["ingress"]["host"] = json!("chat.example.org");
    door["directModels"] = json!(r#"[{ id = "llama", url = "http://inference.models:8080/v1" }]"#);
    let provider = r#"[{ name = "openai", url = "https://api.example.org/v1" }]"#;
    door["egress"] = json!({ "providers": provider, "keysSecret": "provider-keys", "ports": [443] });
}

/// The chart with the node that `values.yaml` has as an example, and a second one.
fn with_nodes(values: &mut Value) {
    let node = |host: &str| {
        json!({
            "pool": "default", "secret": format!("cynode-node-{host}"),
            "nodeSelector": { "kubernetes.io/hostname": host },
            "tolerations": [{ "key": "cynode.dev/jobs", "operator": "Exists" }],
            "runtimeClassName": "kata",
            "resources": { "requests": { "cpu": "500m" }, "limits": { "memory": "8Gi" } },
            "settings": { "CYNODE_NODE_NODE__SLOTS": "8", "CYNODE_NODE_NODE__LABELS": "[\"zone=a\"]" },
            "egressPorts": [443],
        })
    };
    values["nodes"] = json!({ "build-1": node("worker-1"), "build-2": node("worker-2") });
}

fn all_with(changed: impl Fn(&mut Value)) -> Vec<Value> {
    manifests(changed).into_iter().map(|(_, manifest)| manifest).collect()
}

fn of_kind(kind: &str) -> Vec<Value> {
    all().into_iter().filter(|manifest| manifest["kind"] == kind).collect()
}

fn items<'v>(value: &'v Value, pointer: &str) -> Vec<&'v Value> {
    value.pointer(pointer).and_then(Value::as_array).map(|items| items.iter().collect()).unwrap_or_default()
}

/// Pods of Deployments, StatefulSets and Jobs.
fn pods() -> Vec<(String, Value)> {
    let named = |manifest: &Value| manifest["metadata"]["name"].as_str().unwrap().to_owned();
    let with_pods = all().into_iter().filter(|manifest| manifest["spec"]["template"]["spec"].is_object());
    with_pods.map(|manifest| (named(&manifest), manifest["spec"]["template"]["spec"].clone())).collect()
}

fn variables(container: &Value) -> BTreeMap<String, String> {
    let pair = |variable: &Value| {
        let name = variable["name"].as_str().unwrap().to_owned();
        let value = variable["value"].as_str().map(str::to_owned);
        // Values from elsewhere: the name of a pod, the URL of a database.
        let value = value.unwrap_or_else(|| {
            let elsewhere =
                if name.ends_with("URL") { "postgres://cynode@db/cynode" } else { "cynode-pod-1" };
            elsewhere.to_owned()
        });
        (name, value)
    };
    items(container, "/env").into_iter().map(pair).collect()
}

/// Each manifest against Kubernetes' own schemas; custom resources are checked below.
#[test]
fn linter_accepts_every_manifest() {
    let databases = |values: &mut Value| values["gateway"]["databaseSecret"] = json!("cynode-database");
    let fixed = |values: &mut Value| values["autoscaling"]["enabled"] = json!(false);
    let folder = tempfile::tempdir().unwrap();
    let variants = [
        manifests(|_| {}),
        manifests(databases),
        manifests(fixed),
        manifests(open_door),
        manifests(with_nodes),
    ];
    let mut files = Vec::new();
    for (number, (name, manifest)) in variants.into_iter().flatten().enumerate() {
        if manifest["apiVersion"] == "keda.sh/v1alpha1" {
            continue;
        }
        let file = folder.path().join(format!("{number}-{name}"));
        // JSON is YAML in which every version of YAML reads a text as a text.
        fs::write(&file, manifest.to_string()).unwrap();
        files.push(file.display().to_string());
    }
    assert!(files.len() > 20, "{files:?}");
    let mut arguments = vec!["--strict", "--kubernetes-version", "1.29"];
    arguments.extend(files.iter().map(String::as_str));
    let checked = run(&deploy_linter("kubernetes-validate"), folder.path(), &arguments, &[]);
    assert_eq!(checked.code, 0, "{}{}", checked.stdout, checked.stderr);
}

/// C7: autoscaling watches every queue of each role, and no other.
#[test]
fn autoscaling_watches_every_queue() {
    for layout in Layout::ALL {
        let all = all_with(|values| values["nats"]["layout"] = json!(layout));
        every_queue_is_watched(&all, layout);
    }
}

fn every_queue_is_watched(all: &[Value], layout: Layout) {
    let of_kind = |kind: &'static str| all.iter().filter(move |manifest| manifest["kind"] == kind);
    let mut watched = BTreeSet::new();
    for scaled in of_kind("ScaledObject") {
        let target = scaled["spec"]["scaleTargetRef"]["name"].as_str().unwrap();
        let deployment = of_kind("Deployment").find(|one| one["metadata"]["name"] == target);
        let deployment = deployment.expect("a deployment to scale");
        assert!(
            deployment["spec"]["replicas"].is_null(),
            "{target}: replicas would conflict with the autoscaler"
        );
        let container = &deployment["spec"]["template"]["spec"]["containers"][0];
        let role = container["args"][0].as_str().unwrap_or(target).to_owned();
        let (min, max) = (&scaled["spec"]["minReplicaCount"], &scaled["spec"]["maxReplicaCount"]);
        assert!(min.as_u64().unwrap() <= max.as_u64().unwrap(), "{target}");
        for trigger in items(scaled, "/spec/triggers") {
            assert_eq!(trigger["type"], "nats-jetstream");
            let known = ["natsServerMonitoringEndpoint", "account", "stream", "consumer", "lagThreshold"];
            let metadata = trigger["metadata"].as_object().unwrap();
            assert_eq!(metadata.keys().map(String::as_str).collect::<BTreeSet<_>>(), BTreeSet::from(known));
            let lag: u64 =
                metadata["lagThreshold"].as_str().expect("KEDA accepts only strings").parse().unwrap();
            assert!(lag > 0);
            let consumer = metadata["consumer"].as_str().unwrap().to_owned();
            watched.insert((role.clone(), metadata["stream"].as_str().unwrap().to_owned(), consumer));
        }
    }
    let of = |role: Role| role.kinds().map(move |kind| (role, kind));
    let queue = |(role, kind): (Role, Kind)| {
        (format!("--role={role}"), layout.handoffs(role).to_owned(), streams::consumer_name(kind).to_owned())
    };
    let mut queues: BTreeSet<_> = Role::ALL.into_iter().flat_map(of).map(queue).collect();
    let of_runners = [streams::WORKFLOWS, streams::WORKFLOW_RUNNERS].map(str::to_owned);
    let [stream, consumer] = of_runners;
    queues.insert(("cynode-workflow".to_owned(), stream, consumer));
    assert_eq!(watched, queues);
}

/// Every variable is a setting with an accepted value; secrets are mounted as files only.
#[test]
fn every_variable_is_a_setting() {
    let mut seen = 0;
    for (name, pod) in pods() {
        for container in items(&pod, "/containers") {
            let variables = variables(container);
            let (program, arguments): (&str, Vec<&str>) = match container["name"].as_str().unwrap() {
                "worker" => ("cynode-pma", vec![container["args"][0].as_str().unwrap()]),
                "gateway" => ("cynode-gateway", vec![]),
                "orchestrator" => ("cynode-orchestrator", vec![]),
                _ => continue,
            };
            settings::accepts(program, &arguments, &variables);
            let mounts: Vec<&str> = items(container, "/volumeMounts")
                .iter()
                .map(|mount| mount["mountPath"].as_str().unwrap())
                .collect();
            for (key, path) in variables.iter().filter(|(key, _)| key.ends_with("_FILE")) {
                assert!(
                    mounts.iter().any(|mount| path.starts_with(mount)),
                    "{name}: no mount provides {key}"
                );
            }
            seen += 1;
        }
    }
    assert_eq!(seen, 4);
}

/// The runner's pod: its variables are settings, secrets are files, it scales with its slots, and it reaches
/// the gateway and NATS alone.
#[test]
fn workflow_runner_accepts_what_the_chart_tells_it() {
    let all = all();
    let named = |kind: &str, name: &str| -> &Value {
        let is_named = |one: &&Value| one["kind"] == kind && one["metadata"]["name"] == name;
        all.iter().find(is_named).unwrap_or_else(|| panic!("no {kind} {name}"))
    };
    let pod = &named("Deployment", "cynode-workflow")["spec"]["template"]["spec"];
    let variables = variables(&pod["containers"][0]);
    settings::accepts(settings::RUNNER, &[], &variables);
    for (key, path) in variables.iter().filter(|(key, _)| key.ends_with("_FILE")) {
        let mounts = items(&pod["containers"][0], "/volumeMounts");
        let provides = |mount: &&Value| path.starts_with(mount["mountPath"].as_str().unwrap());
        assert!(mounts.iter().any(provides), "no mount provides {key}");
    }
    let lag = &named("ScaledObject", "cynode-workflow")["spec"]["triggers"][0]["metadata"]["lagThreshold"];
    assert_eq!(*lag, *variables["CYNODE_WORKFLOW_RUNNER__SLOTS"]);
    let policy = named("NetworkPolicy", "cynode-workflow");
    let ports = |rules: &str| -> Vec<Value> {
        let ports = items(policy, rules).into_iter().flat_map(|rule| items(rule, "/ports"));
        ports.map(|port| port["port"].clone()).collect()
    };
    assert_eq!((ports("/spec/ingress"), ports("/spec/egress")), (vec![8786.into()], vec![8790.into()]));
    let admitted = items(named("NetworkPolicy", "cynode-gateway"), "/spec/ingress/0/from");
    let is_runner =
        |peer: &&Value| peer["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "workflow";
    assert!(admitted.iter().any(is_runner), "{admitted:?}");
}

/// G3: no pod has more than it needs: no root, no privileges, no service account token, a read-only file
/// system.
#[test]
fn every_pod_is_locked_down() {
    for (name, pod) in pods() {
        assert_eq!(pod["automountServiceAccountToken"], false, "{name}");
        // Service links of a service called gateway would set GATEWAY_PORT, which is not a setting.
        assert_eq!(pod["enableServiceLinks"], false, "{name}");
        assert_eq!(pod["securityContext"]["runAsNonRoot"], true, "{name}");
        for container in items(&pod, "/containers") {
            let context = &container["securityContext"];
            assert_eq!(context["readOnlyRootFilesystem"], true, "{name}");
            assert_eq!(context["allowPrivilegeEscalation"], false, "{name}");
            assert_eq!(context["capabilities"]["drop"], json!(["ALL"]), "{name}");
            assert!(container["resources"]["limits"]["memory"].is_string(), "{name}");
            assert!(!container["image"].as_str().unwrap().ends_with(":latest"), "{name}");
        }
        for volume in items(&pod, "/volumes") {
            assert!(volume["secret"]["secretName"].is_string(), "{name}: {volume}");
        }
    }
    assert!(of_kind("Secret").is_empty(), "the chart references secrets and creates none");
    let covered: BTreeSet<_> =
        of_kind("PodDisruptionBudget").iter().map(|budget| budget["metadata"]["name"].to_string()).collect();
    for kind in ["Deployment", "StatefulSet"] {
        for manifest in of_kind(kind) {
            assert!(
                covered.contains(&manifest["metadata"]["name"].to_string()),
                "{}",
                manifest["metadata"]["name"]
            );
        }
    }
}

/// Probes use paths and ports that the programs serve, and the grace period of a pod is longer than that of
/// its program.
#[test]
fn probes_and_grace_periods_match_the_programs() {
    for (name, pod) in pods() {
        let container = &pod["containers"][0];
        let (alive, ready) = match container["name"].as_str().unwrap() {
            "worker" => ("/healthz", "/readyz"),
            "gateway" | "orchestrator" | "workflow" => ("/livez", "/readyz"),
            _ => continue,
        };
        assert_eq!(container["livenessProbe"]["httpGet"]["path"], alive, "{name}");
        assert_eq!(container["startupProbe"]["httpGet"]["path"], alive, "{name}");
        assert_eq!(container["readinessProbe"]["httpGet"]["path"], ready, "{name}");
        let variables = variables(container);
        let listens: Vec<&str> = variables
            .iter()
            .filter(|(key, _)| key.ends_with("__LISTEN"))
            .map(|(_, address)| address.rsplit(':').next().unwrap())
            .collect();
        for port in items(container, "/ports") {
            assert!(
                listens.contains(&port["containerPort"].to_string().as_str()),
                "{name}: no container listens on {port}"
            );
        }
        for probe in ["livenessProbe", "startupProbe", "readinessProbe"] {
            let port = &container[probe]["httpGet"]["port"];
            assert!(items(container, "/ports").iter().any(|known| known["name"] == *port), "{name}: {probe}");
        }
        let graces = ["PMA_WORKER__GRACE", "ORCHESTRATOR_GRACE", "CYNODE_WORKFLOW_RUNNER__GRACE"];
        let grace = graces.into_iter().find_map(|name| variables.get(name));
        let grace = grace.map_or("20s", String::as_str);
        let grace: u64 = grace.trim_end_matches('s').parse().unwrap();
        assert!(pod["terminationGracePeriodSeconds"].as_u64().unwrap() > grace, "{name}");
    }
}

/// Traffic is allowed only by a policy, and policies name only ports with a listener.
#[test]
fn network_policies_cover_every_pod() {
    let policies = of_kind("NetworkPolicy");
    let everyone = policies.iter().find(|policy| policy["metadata"]["name"] == "cynode-default").unwrap();
    assert_eq!(everyone["spec"]["policyTypes"], json!(["Ingress", "Egress"]));
    assert!(everyone["spec"]["ingress"].is_null(), "ingress is denied by default");
    let wanted = everyone["spec"]["podSelector"]["matchLabels"].as_object().unwrap();
    for manifest in all() {
        let labels = &manifest["spec"]["template"]["metadata"]["labels"];
        if labels.is_object() {
            assert!(wanted.iter().all(|(name, value)| labels[name] == *value), "{labels}");
        }
    }
    let known = [53, 443, 4222, 8080, 8780, 8781, 8786, 8790, 8791, 9180];
    for policy in &policies {
        for rules in ["/spec/ingress", "/spec/egress"] {
            for port in items(policy, rules).into_iter().flat_map(|rule| items(rule, "/ports")) {
                assert!(known.contains(&port["port"].as_u64().unwrap()), "{port}");
            }
        }
    }
}

/// With a collector, every program is configured for it and may reach it; without one, no policy opens it.
#[test]
fn collector_is_configured_and_reachable_only_if_set() {
    let address = "http://otel-collector.monitoring:4318";
    let with = manifests(|values| values["monitoring"]["collector"] = address.into());
    let with: Vec<Value> = with.into_iter().map(|(_, manifest)| manifest).collect();
    let opened = |manifests: &[Value]| {
        let policy =
            manifests.iter().find(|manifest| manifest["metadata"]["name"] == "cynode-default").unwrap();
        let rules = items(policy, "/spec/egress").into_iter();
        rules.flat_map(|rule| items(rule, "/ports")).filter(|port| port["port"] == 4318).count()
    };
    assert_eq!((opened(&with), opened(&all())), (1, 0));
    let mut told = 0;
    for container in with.iter().flat_map(|manifest| items(manifest, "/spec/template/spec/containers")) {
        let (program, arguments, key) = match container["name"].as_str().unwrap() {
            "worker" => {
                ("cynode-pma", vec![container["args"][0].as_str().unwrap()], "PMA_TELEMETRY__OTLP_ENDPOINT")
            }
            "gateway" => ("cynode-gateway", vec![], "GATEWAY_TELEMETRY__OTLP_ENDPOINT"),
            "orchestrator" => ("cynode-orchestrator", vec![], "ORCHESTRATOR_TELEMETRY__OTLP_ENDPOINT"),
            _ => continue,
        };
        let variables = variables(container);
        assert_eq!(variables.get(key).map(String::as_str), Some(address));
        settings::accepts(program, &arguments, &variables);
        told += 1;
    }
    assert_eq!(told, 4);
}

/// The egress has a Service of its own that only workers reach, and exists with providers alone; the Ingress
/// leads to the API and nothing else.
#[test]
fn egress_and_ingress_are_open_only_if_set() {
    let port_8782 = |manifests: &[Value]| {
        let policies = manifests.iter().filter(|manifest| manifest["kind"] == "NetworkPolicy");
        let rules = policies.flat_map(|policy| {
            ["/spec/ingress", "/spec/egress"].map(|rules| items(policy, rules)).into_iter().flatten()
        });
        let opened = rules.filter(|rule| items(rule, "/ports").iter().any(|port| port["port"] == 8782));
        opened.cloned().collect::<Vec<Value>>()
    };
    let named = |manifests: &[Value], kind: &str, name: &str| -> Option<Value> {
        let is_named = |one: &&Value| one["kind"] == kind && one["metadata"]["name"] == name;
        manifests.iter().find(is_named).cloned()
    };
    let closed = all();
    assert_eq!(port_8782(&closed), Vec::<Value>::new());
    assert_eq!(named(&closed, "Service", "cynode-egress"), None);
    assert_eq!(named(&closed, "Ingress", "cynode-orchestrator"), None);

    let open = all_with(open_door);
    let rules = port_8782(&open);
    assert_eq!(rules.len(), 2, "{rules:?}");
    let from = items(&rules[1], "/from");
    let labels = |peer: &Value| peer["podSelector"]["matchLabels"].clone();
    assert!(from.len() == 1 && labels(from[0])["cynode.dev/worker"] == "true", "{from:?}");
    assert!(named(&open, "Service", "cynode-egress").is_some());
    let ingress = named(&open, "Ingress", "cynode-orchestrator").unwrap();
    let path = &ingress["spec"]["rules"][0]["http"]["paths"][0];
    assert_eq!((&path["path"], &path["backend"]["service"]["port"]["name"]), (&json!("/v1"), &json!("api")));
    let door = named(&open, "Deployment", "cynode-orchestrator").unwrap();
    let container = &door["spec"]["template"]["spec"]["containers"][0];
    let variables = variables(container);
    assert!(variables["ORCHESTRATOR_API__HOSTS"].contains("chat.example.org"));
    settings::accepts("cynode-orchestrator", &[], &variables);
    let mounts = items(container, "/volumeMounts");
    assert!(mounts.iter().any(|mount| mount["mountPath"] == "/run/secrets/providers"), "{mounts:?}");
}

/// Without being asked for, no pod is privileged. Each node has an id, an inbox and a secret of its own; it
/// reaches NATS and the gateway, and what its jobs may reach if that is set.
#[test]
fn nodes_are_separate_and_only_there_if_named() {
    assert!(of_kind("DaemonSet").is_empty());
    let all = all_with(with_nodes);
    let mut secrets = BTreeSet::new();
    for (id, host) in [("build-1", "worker-1"), ("build-2", "worker-2")] {
        let name = format!("cynode-node-{id}");
        let named = |kind: &str| {
            let is_named = |one: &&Value| one["kind"] == kind && one["metadata"]["name"] == *name;
            all.iter().find(is_named).unwrap_or_else(|| panic!("no {kind} {name}"))
        };
        let daemon = named("DaemonSet");
        // Two pods with one id do not both take jobs.
        assert_eq!(daemon["spec"]["updateStrategy"]["rollingUpdate"]["maxSurge"], 0);
        let pod = &daemon["spec"]["template"]["spec"];
        assert_eq!(pod["nodeSelector"]["kubernetes.io/hostname"], host);
        assert_eq!(
            (&pod["automountServiceAccountToken"], &pod["hostNetwork"]),
            (&json!(false), &Value::Null)
        );
        assert_eq!((&pod["hostPID"], &pod["runtimeClassName"]), (&Value::Null, &json!("kata")));
        let volumes = items(pod, "/volumes");
        assert!(volumes.iter().all(|volume| volume["hostPath"].is_null()), "{volumes:?}");
        let secret = volumes.iter().find(|volume| volume["name"] == "identity").unwrap();
        secrets.insert(secret["secret"]["secretName"].as_str().unwrap().to_owned());
        let container = &pod["containers"][0];
        assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true);
        let variables = variables(container);
        assert_eq!(variables["CYNODE_NODE_NODE__ID"], id);
        assert_eq!(variables["CYNODE_NODE_NATS__INBOX_PREFIX"], format!("_INBOX_node-{id}"));
        settings::accepts("cynode-node", &[], &variables);
        assert_eq!(container["livenessProbe"]["httpGet"]["path"], "/livez");
        assert_eq!(container["readinessProbe"]["httpGet"]["path"], "/readyz");
        assert!(variables["CYNODE_NODE_ADMIN__LISTEN"].ends_with(":8785"));
        let grace: u64 = variables["CYNODE_NODE_NODE__GRACE"].trim_end_matches('s').parse().unwrap();
        assert!(pod["terminationGracePeriodSeconds"].as_u64().unwrap() > grace);
        let policy = named("NetworkPolicy");
        let ports = |rules: &str| -> Vec<Value> {
            let ports = items(policy, rules).into_iter().flat_map(|rule| items(rule, "/ports"));
            ports.map(|port| port["port"].clone()).collect()
        };
        assert_eq!(
            (ports("/spec/ingress"), ports("/spec/egress")),
            (vec![8785.into()], vec![8790.into(), 443.into()])
        );
    }
    assert_eq!(secrets.len(), 2, "no node has the key of another");
}
