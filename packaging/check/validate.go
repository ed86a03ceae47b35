package main

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/api/pod"
	"k8s.io/kubernetes/pkg/apis/apps"
	_ "k8s.io/kubernetes/pkg/apis/apps/install"
	appsvalidation "k8s.io/kubernetes/pkg/apis/apps/validation"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	corevalidation "k8s.io/kubernetes/pkg/apis/core/validation"
	"k8s.io/kubernetes/pkg/apis/networking"
	_ "k8s.io/kubernetes/pkg/apis/networking/install"
	networkingvalidation "k8s.io/kubernetes/pkg/apis/networking/validation"
)

// validate applies Kubernetes' defaults and validation to an object, as its API server does.
func validate(typed runtime.Object) error {
	legacyscheme.Scheme.Default(typed)
	switch typed.(type) {
	case *appsv1.DaemonSet:
		return validated(typed, func(set *apps.DaemonSet) field.ErrorList {
			return appsvalidation.ValidateDaemonSet(set, pod.GetValidationOptionsFromPodTemplate(&set.Spec.Template, nil))
		})
	case *corev1.ConfigMap:
		return validated(typed, corevalidation.ValidateConfigMap)
	case *corev1.ServiceAccount:
		return validated(typed, corevalidation.ValidateServiceAccount)
	case *corev1.Namespace:
		return validated(typed, corevalidation.ValidateNamespace)
	case *networkingv1.NetworkPolicy:
		return validated(typed, func(policy *networking.NetworkPolicy) field.ErrorList {
			return networkingvalidation.ValidateNetworkPolicy(policy, networkingvalidation.NetworkPolicyValidationOptions{})
		})
	}
	return fmt.Errorf("there is no validation of %T", typed)
}

// validated applies a validation, which takes Kubernetes' internal type.
func validated[Internal any](typed runtime.Object, validation func(*Internal) field.ErrorList) error {
	internal := new(Internal)
	if err := legacyscheme.Scheme.Convert(typed, internal, nil); err != nil {
		return err
	}
	return validation(internal).ToAggregate()
}
