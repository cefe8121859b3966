#!/usr/bin/env python3
"""Checks the manifests of docs/kubernetes.md: their structure, and that every name in them refers to something.

All blocks of the page are one set of objects. `faults` is a function of such a set, so that the tests below can show
that it finds a mistake: each of them makes one in a copy. If TROUPE_PROGRAM names the program, that checks the config
as well. Needs PyYAML; ends with 77, and says so, without it.
"""

import copy
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

try:
    import yaml
except ImportError:
    print("skipped: there is no PyYAML (python3-yaml)")
    sys.exit(77)

from references_test import is_key, keys_of

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "kubernetes.md"
NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")
QUANTITY = re.compile(r"\d+(\.\d+)?(m|k|M|G|T|Ki|Mi|Gi|Ti)?$")
UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
# Defaults: of Kubernetes for terminationGracePeriodSeconds, and of a node for drain_timeout and http.port.
GRACE_SECONDS = 30
DRAIN_SECONDS = 30
DEFAULT_PORT = 18000

# The fields that objects may have, and the type of each: a part of Kubernetes' own schema, and no more than what the
# page uses or is likely to. A tuple is a choice of values, a list has items of one type, `ANY` a map of texts.
ANY = {"*": str}
SECURITY = {"runAsUser": int, "runAsGroup": int, "runAsNonRoot": bool, "allowPrivilegeEscalation": bool,
            "readOnlyRootFilesystem": bool, "privileged": bool, "capabilities": {"drop": [str], "add": [str]},
            "seccompProfile": {"type": ("Localhost", "RuntimeDefault", "Unconfined"), "localhostProfile": str}}
PROBE = {"httpGet": {"path": str, "port": (str, int), "scheme": ("HTTP", "HTTPS")}, "periodSeconds": int,
         "failureThreshold": int, "timeoutSeconds": int, "initialDelaySeconds": int}
RESOURCES = {"*": (str, int)}
CONTAINER = {"name": str, "image": str, "command": [str], "args": [str], "securityContext": SECURITY,
             "resources": {"requests": RESOURCES, "limits": RESOURCES},
             "ports": [{"name": str, "containerPort": int, "protocol": ("TCP", "UDP")}], "startupProbe": PROBE,
             "readinessProbe": PROBE, "livenessProbe": PROBE,
             "volumeMounts": [{"name": str, "mountPath": str, "readOnly": bool, "subPath": str}]}
ITEMS = [{"key": str, "path": str, "mode": int}]
VOLUME = {"name": str, "hostPath": {"path": str, "type": ("Directory", "DirectoryOrCreate")},
          "configMap": {"name": str, "items": ITEMS, "defaultMode": int},
          "secret": {"secretName": str, "items": ITEMS, "defaultMode": int},
          "emptyDir": {"medium": str, "sizeLimit": str}, "persistentVolumeClaim": {"claimName": str}}
POD = {"hostPID": bool, "nodeSelector": ANY, "terminationGracePeriodSeconds": int, "restartPolicy": str,
       "tolerations": [{"key": str, "operator": ("Exists", "Equal"), "value": str, "effect": str}],
       "securityContext": {"fsGroup": int, "fsGroupChangePolicy": ("OnRootMismatch", "Always"), "runAsUser": int,
                           "runAsNonRoot": bool},
       "initContainers": [CONTAINER], "containers": [CONTAINER], "volumes": [VOLUME]}
METADATA = {"name": str, "namespace": str, "labels": ANY, "annotations": ANY}
LABELS = {"matchLabels": ANY}
HEAD = {"apiVersion": str, "kind": str, "metadata": METADATA}
KINDS = {
    ("v1", "Namespace"): HEAD,
    ("v1", "Secret"): {**HEAD, "type": str, "stringData": ANY, "data": ANY},
    ("v1", "ConfigMap"): {**HEAD, "data": ANY},
    ("v1", "Pod"): {**HEAD, "spec": POD},
    ("v1", "Service"): {**HEAD, "spec": {"selector": ANY, "clusterIP": str, "type": ("ClusterIP", "NodePort"),
                                         "internalTrafficPolicy": ("Local", "Cluster"),
                                         "ports": [{"name": str, "port": int, "targetPort": (str, int)}]}},
    ("apps/v1", "DaemonSet"): {**HEAD, "spec": {"selector": LABELS, "template": {"metadata": METADATA, "spec": POD}}},
    ("monitoring.coreos.com/v1", "PodMonitor"): {
        **HEAD, "spec": {"selector": LABELS, "podMetricsEndpoints": [
            {"port": str, "path": str, "scheme": ("http", "https"), "interval": str,
             "authorization": {"type": str, "credentials": {"name": str, "key": str}}}]}},
}


class StrictLoader(yaml.SafeLoader):
    """Refuses keys that are there twice."""

    def construct_mapping(self, node, deep=False):
        keys = [self.construct_object(key, deep=deep) for key, _ in node.value]
        for key in keys:
            if keys.count(key) > 1:
                raise yaml.constructor.ConstructorError(None, None, f"the key {key!r} is there twice", node.start_mark)
        return super().construct_mapping(node, deep=deep)


def objects_of(page):
    """All objects in the YAML blocks of a page."""
    blocks = re.findall(r"^```ya?ml\n(.*?)^```", page, re.M | re.S)
    return [x for block in blocks for x in yaml.load_all(block, Loader=StrictLoader)]


def misfits(value, schema, where):
    """Where a value is not of its type, as sentences."""
    if isinstance(schema, dict):
        if not isinstance(value, dict):
            return [f"{where} is no object"]
        out = []
        for key, below in value.items():
            if key not in schema and "*" not in schema:
                out.append(f"{where} has no field {key!r}")
            else:
                out += misfits(below, schema.get(key, schema.get("*")), f"{where}.{key}")
        return out
    if isinstance(schema, list):
        if not isinstance(value, list):
            return [f"{where} is no list"]
        return [x for i, item in enumerate(value) for x in misfits(item, schema[0], f"{where}[{i}]")]
    if isinstance(schema, tuple) and isinstance(schema[0], str):
        return [] if value in schema else [f"{where} is {value!r}, not one of {schema}"]
    types = schema if isinstance(schema, tuple) else (schema,)
    return [] if type(value) in types else [f"{where} is {value!r}, no {' or '.join(x.__name__ for x in types)}"]


def amount(text):
    """16 GiB or 20Gi as a number."""
    number, unit = re.match(r"([\d.]+)\s*(\w*)$", str(text)).groups()
    return float(number) * UNITS.get(unit, 1)


class Set:
    """Objects that are applied together."""

    def __init__(self, objects):
        self.objects = objects
        # (labels, namespace, spec) of each pod, also of those that a template makes.
        self.pods = [(x["metadata"].get("labels", {}), x["metadata"].get("namespace"), x["spec"])
                     for x in objects if x["kind"] == "Pod"]
        self.pods += [(x["spec"]["template"]["metadata"].get("labels", {}), x["metadata"].get("namespace"),
                       x["spec"]["template"]["spec"]) for x in objects if x["kind"] == "DaemonSet"]

    def named(self, kind, name, namespace):
        return next((x for x in self.objects if x["kind"] == kind and x["metadata"]["name"] == name
                     and x["metadata"].get("namespace") == namespace), None)

    def entries(self, kind, name, namespace):
        """The keys and texts of a ConfigMap or Secret; None if there is none."""
        found = self.named(kind, name, namespace)
        return found and {**found.get("data", {}), **found.get("stringData", {})}

    def selected(self, selector, namespace):
        return [spec for labels, where, spec in self.pods if where == namespace and selector
                and selector.items() <= labels.items()]


def containers_of(pod):
    return [*pod.get("initContainers", []), *pod["containers"]]


def ports_of(pod):
    """The ports of a pod, by name and by number."""
    ports = [x for c in pod["containers"] for x in c.get("ports", [])]
    return {**{x["name"]: x["containerPort"] for x in ports}, **{x["containerPort"]: x["containerPort"] for x in ports}}


def files_of(pod, container, namespace, objects):
    """Files that a container sees of ConfigMaps and Secrets: {path: text}; faults of these volumes."""
    files, out = {}, []
    mounts = container.get("volumeMounts", [])
    for mount in mounts:
        volume = next((x for x in pod.get("volumes", []) if x["name"] == mount["name"]), None)
        if volume is None:
            out.append(f"{container['name']} mounts {mount['name']}, which is no volume of the pod")
            continue
        for kind, key, name in (("ConfigMap", "configMap", "name"), ("Secret", "secret", "secretName")):
            if key not in volume:
                continue
            entries = objects.entries(kind, volume[key][name], namespace)
            if entries is None:
                out.append(f"the volume {volume['name']} is of a {kind} {volume[key][name]!r}, which is not there")
                continue
            chosen = {x["path"]: x["key"] for x in volume[key].get("items", [])} or {x: x for x in entries}
            for path, entry in chosen.items():
                if entry in entries:
                    files[f"{mount['mountPath']}/{path}"] = entries[entry]
                else:
                    out.append(f"the volume {volume['name']} takes {entry!r}, which {volume[key][name]} does not have")
    paths = [x["mountPath"] for x in mounts]
    out += [f"{container['name']} mounts {x} twice" for x in {x for x in paths if paths.count(x) > 1}]
    return files, out


def pod_faults(pod, namespace, objects, keys):
    out = []
    volumes, names = [x["name"] for x in pod.get("volumes", [])], [x["name"] for x in containers_of(pod)]
    out += [f"{x!r} is there twice" for x in {x for x in [*volumes, *names] if (volumes + names).count(x) > 1
                                             and (volumes.count(x) > 1 or names.count(x) > 1)}]
    out += [f"{x!r} is no name" for x in [*volumes, *names] if not NAME.match(x)]
    mounted = {m["name"] for c in containers_of(pod) for m in c.get("volumeMounts", [])}
    out += [f"no container mounts the volume {x}" for x in volumes if x not in mounted]
    out += [f"the volume {x['name']} has {len(x) - 1} sources" for x in pod.get("volumes", []) if len(x) != 2]
    for container in containers_of(pod):
        files, wrong = files_of(pod, container, namespace, objects)
        out += wrong
        ports = ports_of({"containers": [container]})
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            if probe in container and container[probe]["httpGet"]["port"] not in ports:
                out.append(f"{probe} is for the port {container[probe]['httpGet']['port']!r}, which is not there")
        for group in container.get("resources", {}).values():
            out += [f"{x!r} is no quantity" for x in group.values() if not QUANTITY.match(str(x))]
        if container.get("args", [])[:2] == ["serve", "--config"]:
            out += node_faults(pod, container, files, keys)
    return out


def node_faults(pod, container, files, keys):
    """Faults of the config that a node gets, and of how the pod fits it."""
    path = container["args"][2]
    if path not in files:
        return [f"the node reads {path}, which no volume has"]
    try:
        config = json.loads(files[path])
    except ValueError as error:
        return [f"{path} is no JSON: {error}"]
    leaves = []

    def walk(value, at):
        for key, below in value.items():
            walk(below, f"{at}{key}.") if isinstance(below, dict) else leaves.append(at + key)

    walk(config, "")
    out = [f"{path}: {x} is no key of a config" for x in leaves if not is_key(x, keys)]
    http = config.get("http", {})
    if "tokens_file" in http:
        if http["tokens_file"] not in files:
            out.append(f"{path} names the tokens file {http['tokens_file']}, which no volume has")
        if "fsGroup" not in pod.get("securityContext", {}):
            out.append("without fsGroup the node cannot read its tokens")
        readable = [x["name"] for x in pod.get("volumes", [])
                    if "secret" in x and x["secret"].get("defaultMode", 0o644) & 0o007]
        out += [f"other users can read the volume {x}" for x in readable]
    if http.get("port", DEFAULT_PORT) not in ports_of(pod):
        out.append(f"the node listens on {http.get('port', DEFAULT_PORT)}, which is no port of the container")
    if config["data_dir"] not in {x["mountPath"] for x in container["volumeMounts"] if not x.get("readOnly")}:
        out.append(f"data_dir {config['data_dir']} is in no volume")
    if amount(container["resources"]["limits"]["memory"]) <= amount(config["memory"]["bytes"]):
        out.append("the limit of memory does not hold memory.bytes")
    if pod.get("terminationGracePeriodSeconds", GRACE_SECONDS) <= DRAIN_SECONDS:
        out.append("the pod ends before drain_timeout")
    return out


def engine_faults(pod, nodes):
    """Whether an engine attaches to the directory, and runs as the user, of one of these nodes."""
    out = []
    for container in pod["containers"]:
        for argument in container.get("args", []):
            if not argument.startswith("--kv-transfer-config="):
                continue
            address = json.loads(argument.partition("=")[2])["kv_connector_extra_config"]["troupe.address"]
            mount = next((x for x in container.get("volumeMounts", []) if x["mountPath"] == address), None)
            if mount is None:
                out.append(f"the engine attaches at {address}, where it has no volume")
                continue
            path = next((x["hostPath"]["path"] for x in pod["volumes"] if x["name"] == mount["name"]), None)
            beside = [n for n in nodes if path in [x.get("hostPath", {}).get("path") for x in n.get("volumes", [])]]
            if not beside:
                out.append(f"no node has the directory {path} of the engine")
            users = [c["securityContext"]["runAsUser"] for n in beside for c in n["containers"]]
            if beside and container["securityContext"]["runAsUser"] not in users:
                out.append("the engine runs as another user than the node")
    return out


def faults(objects, keys):
    """What is wrong with these objects, as sentences."""
    out = []
    for i, x in enumerate(objects):
        kind = (x.get("apiVersion"), x.get("kind")) if isinstance(x, dict) else (None, None)
        if kind not in KINDS:
            out.append(f"object {i} is of no known kind: {kind}")
        else:
            out += misfits(x, KINDS[kind], f"{kind[1]} {x.get('metadata', {}).get('name')}")
            if not NAME.match(str(x.get("metadata", {}).get("name"))):
                out.append(f"object {i} has no name")
    if out:
        return out  # what follows needs the structure
    known = Set(objects)
    ids = [(x["kind"], x["metadata"]["name"], x["metadata"].get("namespace")) for x in objects]
    out += [f"{x} is there twice" for x in set(ids) if ids.count(x) > 1]
    for x in objects:
        namespace = x["metadata"].get("namespace")
        if x["kind"] != "Namespace" and known.named("Namespace", namespace, None) is None:
            out.append(f"{x['kind']} {x['metadata']['name']} is in the namespace {namespace!r}, which is not there")
        if x["kind"] == "DaemonSet" and not (x["spec"]["selector"]["matchLabels"].items()
                                             <= x["spec"]["template"]["metadata"]["labels"].items()):
            out.append(f"{x['metadata']['name']} does not select its own pods")
        if x["kind"] == "Service":
            pods = known.selected(x["spec"]["selector"], namespace)
            out += [] if pods else [f"the Service {x['metadata']['name']} selects no pod"]
            out += [f"the Service {x['metadata']['name']} leads to {port.get('targetPort', port['port'])!r}, which is "
                    "no port of its pods" for port in x["spec"]["ports"] for pod in pods
                    if port.get("targetPort", port["port"]) not in ports_of(pod)]
        if x["kind"] == "PodMonitor":
            pods = known.selected(x["spec"]["selector"]["matchLabels"], namespace)
            out += [] if pods else ["the PodMonitor selects no pod"]
            for end in x["spec"]["podMetricsEndpoints"]:
                out += [f"the PodMonitor reads the port {end['port']!r}, which is not there" for pod in pods
                        if end["port"] not in ports_of(pod)]
                token = end.get("authorization", {}).get("credentials")
                if token and token["key"] not in (known.entries("Secret", token["name"], namespace) or {}):
                    out.append(f"there is no Secret {token['name']} with {token['key']!r}")
    for _, namespace, pod in known.pods:
        out += pod_faults(pod, namespace, known, keys)
        nodes = [x for _, _, x in known.pods if any(c.get("args", [])[:1] == ["serve"] for c in x["containers"])]
        out += engine_faults(pod, nodes)
    return out


class Manifests(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.page = PAGE.read_text(encoding="utf-8")
        cls.objects = objects_of(cls.page)
        cls.keys = keys_of((ROOT / "docs" / "configuration.md").read_text(encoding="utf-8"))

    def test_the_page_has_every_kind(self):
        self.assertEqual({(x["apiVersion"], x["kind"]) for x in self.objects}, set(KINDS))

    def test_there_is_no_fault(self):
        self.assertEqual(faults(self.objects, self.keys), [])

    def test_the_token_of_prometheus_is_one_of_the_node(self):
        known = Set(self.objects)
        tokens = known.entries("Secret", "troupe-tokens", "troupe")["tokens"]
        token = known.entries("Secret", "troupe-prometheus", "troupe")["token"]
        self.assertIn(["read", token], [line.split()[:2] for line in tokens.splitlines()])

    @unittest.skipUnless(os.environ.get("TROUPE_PROGRAM"), "TROUPE_PROGRAM names no program")
    def test_the_program_accepts_config_and_tokens(self):
        known = Set(self.objects)
        with tempfile.TemporaryDirectory(prefix="troupe-kubernetes-") as folder:
            for name, text in (("node.json", known.entries("ConfigMap", "troupe", "troupe")["node.json"]),
                               ("tokens", known.entries("Secret", "troupe-tokens", "troupe")["tokens"])):
                path = pathlib.Path(folder) / name
                path.write_text(text, encoding="utf-8")
                path.chmod(0o600)
            # A host with the paths, the memory and the disk of the page is not to be had here.
            checked = subprocess.run(
                [os.environ["TROUPE_PROGRAM"], "check-config", f"{folder}/node.json",
                 "--set", f"data_dir={folder}/data", "--set", f"http.tokens_file={folder}/tokens",
                 "--set", "memory.bytes=64 MiB", "--set", "storage.disk_bytes=64 MiB"],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
        self.assertEqual((checked.returncode, checked.stderr), (0, ""))

    def test_the_json_of_the_page_is_valid(self):
        blocks = re.findall(r"^```json\n(.*?)^```", self.page, re.M | re.S)
        self.assertEqual(len(blocks), 1)
        self.assertEqual(json.loads(blocks[0])["action"], "SCMP_ACT_ALLOW")


def one(objects, kind, name="troupe"):
    return next(x for x in objects if x["kind"] == kind and x["metadata"]["name"] == name)


def node(objects):
    return one(objects, "DaemonSet")["spec"]["template"]["spec"]


def engine(objects):
    return one(objects, "Pod", "vllm")["spec"]


def change(of, key, value):
    of[key] = value


def config(objects, old, new):
    data = one(objects, "ConfigMap")["data"]
    assert old in data["node.json"]
    data["node.json"] = data["node.json"].replace(old, new)


# Mistakes, each with a part of the sentence that has to be among the faults.
MISTAKES = [
    ("of no known kind", lambda o: change(one(o, "DaemonSet"), "apiVersion", "apps/v1beta1")),
    ("of no known kind", lambda o: change(one(o, "Service"), "kind", "Sevice")),
    ("has no name", lambda o: change(one(o, "Service")["metadata"], "name", "Troupe_x")),
    ("has no field 'defaultmode'", lambda o: change(node(o)["volumes"][2]["secret"], "defaultmode", 1)),
    ("is no list", lambda o: change(one(o, "Service")["spec"], "ports", {"port": 1})),
    ("no int", lambda o: change(one(o, "Service")["spec"]["ports"][0], "port", "18000")),
    ("not one of", lambda o: change(node(o)["volumes"][0]["hostPath"], "type", "directory")),
    ("is there twice", lambda o: o.append(copy.deepcopy(one(o, "Service")))),
    ("namespace 'troup'", lambda o: change(one(o, "ConfigMap")["metadata"], "namespace", "troup")),
    ("namespace None", lambda o: one(o, "Pod", "vllm")["metadata"].pop("namespace")),
    ("ConfigMap 'troupe', which is not there", lambda o: o.remove(one(o, "ConfigMap"))),
    ("Secret 'tokens', which is not there", lambda o: change(node(o)["volumes"][2]["secret"], "secretName", "tokens")),
    ("does not have", lambda o: change(node(o)["volumes"][2]["secret"], "items", [{"key": "a", "path": "tokens"}])),
    ("no volume of the pod", lambda o: change(node(o)["containers"][0]["volumeMounts"][1], "name", "conf")),
    ("no container mounts", lambda o: node(o)["containers"][0]["volumeMounts"].pop()),
    ("mounts /etc/troupe twice", lambda o: change(node(o)["containers"][0]["volumeMounts"][2], "mountPath",
                                                  "/etc/troupe")),
    ("has 2 sources", lambda o: change(node(o)["volumes"][0], "emptyDir", {})),
    ("livenessProbe is for the port 'htp'", lambda o: change(node(o)["containers"][0]["livenessProbe"]["httpGet"],
                                                             "port", "htp")),
    ("startupProbe is for the port", lambda o: change(node(o)["containers"][0]["ports"][0], "name", "web")),
    ("no quantity", lambda o: change(node(o)["containers"][0]["resources"]["limits"], "memory", "20GB")),
    ("does not select its own pods", lambda o: change(one(o, "DaemonSet")["spec"]["selector"]["matchLabels"], "app",
                                                      "troup")),
    ("the Service troupe selects no pod", lambda o: change(one(o, "Service")["spec"]["selector"], "app", "node")),
    ("the Service troupe leads to 'web'", lambda o: change(one(o, "Service")["spec"]["ports"][0], "targetPort",
                                                           "web")),
    ("the PodMonitor selects no pod", lambda o: change(one(o, "PodMonitor")["spec"]["selector"]["matchLabels"], "app",
                                                       "vllm")),
    ("the PodMonitor reads the port", lambda o: change(one(o, "PodMonitor")["spec"]["podMetricsEndpoints"][0], "port",
                                                       "metrics")),
    ("no Secret troupe-prometheus with 'token'", lambda o: o.remove(one(o, "Secret", "troupe-prometheus"))),
    ("no Secret troupe-prometheus with 'token'", lambda o: change(one(o, "Secret", "troupe-prometheus"), "stringData",
                                                                  {"tokens": "x"})),
    ("reads /etc/troupe/config.json", lambda o: change(node(o)["containers"][0]["args"], 2,
                                                       "/etc/troupe/config.json")),
    ("is no JSON", lambda o: config(o, '"ranks": []', '"ranks": [],')),
    ("memory.byte is no key", lambda o: config(o, '"bytes": ', '"byte": 1, "bytes": ')),
    ("tokens file /etc/troupe-token/tokens", lambda o: config(o, "troupe-tokens/", "troupe-token/")),
    ("without fsGroup", lambda o: node(o).pop("securityContext")),
    ("other users can read", lambda o: node(o)["volumes"][2]["secret"].pop("defaultMode")),
    ("listens on 18001", lambda o: config(o, "18000", "18001")),
    ("data_dir /var/lib/other is in no volume", lambda o: config(o, "/var/lib/troupe", "/var/lib/other")),
    ("does not hold memory.bytes", lambda o: config(o, "16 GiB", "20 GiB")),
    ("before drain_timeout", lambda o: node(o).pop("terminationGracePeriodSeconds")),
    ("attaches at /var/lib/troupe, where", lambda o: change(engine(o)["containers"][0]["volumeMounts"][0], "mountPath",
                                                            "/data")),
    ("no node has the directory", lambda o: change(engine(o)["volumes"][0]["hostPath"], "path", "/srv")),
    ("another user than the node", lambda o: change(engine(o)["containers"][0]["securityContext"], "runAsUser", 1001)),
]


class Checks(unittest.TestCase):
    """Tests that the checks find their mistakes."""

    def test_mistakes_are_found(self):
        objects = objects_of(PAGE.read_text(encoding="utf-8"))
        keys = keys_of((ROOT / "docs" / "configuration.md").read_text(encoding="utf-8"))
        for sentence, mistake in MISTAKES:
            with self.subTest(sentence):
                wrong = copy.deepcopy(objects)
                mistake(wrong)
                found = faults(wrong, keys)
                self.assertTrue(any(sentence in x for x in found), found)

    def test_a_key_that_is_there_twice_is_refused(self):
        with self.assertRaises(yaml.YAMLError):
            objects_of("```yaml\na: 1\nb: 2\na: 3\n```\n")
        self.assertEqual(objects_of("```yaml\na: 1\n---\nb: 2\n```\n"), [{"a": 1}, {"b": 2}])


if __name__ == "__main__":
    unittest.main()
