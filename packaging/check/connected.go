package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// connected refuses objects that miss each other: one in another namespace; a port of a probe, PodMonitor or NetworkPolicy
// that is not the one that the agent listens on; probes and a PodMonitor of different schemes; a selector that does not
// select the agent's pods; and a missing object that these pods name. Each object alone is valid.
func connected(all []object) error {
	var pods *corev1.PodTemplateSpec
	var listen, digest string
	there := map[string]bool{}
	schemes := map[string]bool{}
	var selectors []selector
	var ports []port
	for _, object := range all {
		there[object.name()] = true
		in, _, _ := unstructured.NestedString(object.tree, "metadata", "namespace")
		if in != namespace && object.kind() != "v1/Namespace" {
			return fmt.Errorf("%s is in the namespace %q", object.name(), in)
		}
		typed, err := object.typed()
		if err != nil {
			return err
		}
		switch typed := typed.(type) {
		case *appsv1.DaemonSet:
			pods = &typed.Spec.Template
		case *corev1.ConfigMap:
			if text, ok := typed.Data["config.toml"]; ok {
				var configuration struct{ Listen string }
				if err := toml.Unmarshal([]byte(text), &configuration); err != nil {
					return err
				}
				listen = configuration.Listen
				digest = fmt.Sprintf("-%.5x", sha256.Sum256([]byte(text)))
			}
		case *monitoringv1.PodMonitor:
			selectors = append(selectors, selector{object.name(), typed.Spec.Selector})
			for _, endpoint := range typed.Spec.PodMetricsEndpoints {
				if endpoint.Port == nil {
					return fmt.Errorf("%s names no port", object.name())
				}
				ports = append(ports, port{object.name(), intstr.FromString(*endpoint.Port)})
				if endpoint.Scheme != nil {
					schemes[strings.ToUpper(string(*endpoint.Scheme))] = true
				}
			}
		case *networkingv1.NetworkPolicy:
			selectors = append(selectors, selector{object.name(), typed.Spec.PodSelector})
			for _, rule := range typed.Spec.Ingress {
				for _, allowed := range rule.Ports {
					if allowed.Port == nil {
						return fmt.Errorf("%s names no port", object.name())
					}
					ports = append(ports, port{object.name(), *allowed.Port})
				}
			}
		}
	}
	if pods == nil {
		return errors.New("there is no DaemonSet")
	}
	for _, one := range selectors {
		selects, err := metav1.LabelSelectorAsSelector(&one.selector)
		if err != nil {
			return fmt.Errorf("%s: %w", one.of, err)
		}
		if !selects.Matches(labels.Set(pods.Labels)) {
			return fmt.Errorf("%s selects %s, but the pods have the labels %v", one.of, selects, pods.Labels)
		}
	}
	address, err := netip.ParseAddrPort(listen)
	if err != nil {
		return fmt.Errorf("`listen` of the configuration: %w", err)
	}
	agent := pods.Spec.Containers[0]
	for _, probe := range []*corev1.Probe{agent.LivenessProbe, agent.ReadinessProbe, agent.StartupProbe} {
		if probe == nil || probe.HTTPGet == nil {
			return errors.New("one of the three probes asks for no page")
		}
		schemes[string(probe.HTTPGet.Scheme)] = true
		ports = append(ports, port{"the probe of " + probe.HTTPGet.Path, probe.HTTPGet.Port})
	}
	if len(schemes) > 1 {
		return errors.New("the probes and the PodMonitor differ in the scheme")
	}
	for _, one := range ports {
		leads := slices.ContainsFunc(agent.Ports, func(of corev1.ContainerPort) bool {
			named := one.port == intstr.FromString(of.Name) || one.port == intstr.FromInt32(of.ContainerPort)
			return named && of.ContainerPort == int32(address.Port())
		})
		if !leads {
			return fmt.Errorf("the port %s of %s does not lead to where the agent listens, %s", &one.port, one.of, listen)
		}
	}
	named := []string{"v1/ServiceAccount " + pods.Spec.ServiceAccountName}
	for _, volume := range pods.Spec.Volumes {
		if volume.ConfigMap != nil {
			named = append(named, "v1/ConfigMap "+volume.ConfigMap.Name)
			// Agents read their configuration once: a change of it must restart them.
			if !strings.HasSuffix(volume.ConfigMap.Name, digest) {
				return fmt.Errorf("the name %s must end in the digest of the configuration, %s", volume.ConfigMap.Name, digest)
			}
		}
	}
	for _, one := range named {
		if !there[one] {
			return fmt.Errorf("the pods need %s, which is not there", one)
		}
	}
	return nil
}

// selector is an object's selector for the agent's pods.
type selector struct {
	of       string
	selector metav1.LabelSelector
}

// port is the agent's port, as an object names it.
type port struct {
	of   string
	port intstr.IntOrString
}
