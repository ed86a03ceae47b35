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
	"k8s.io/kubernetes/pkg/apis/core"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	corevalidation "k8s.io/kubernetes/pkg/apis/core/validation"
	"k8s.io/kubernetes/pkg/apis/networking"
	_ "k8s.io/kubernetes/pkg/apis/networking/install"
	networkingvalidation "k8s.io/kubernetes/pkg/apis/networking/validation"
)

// validate applies Kubernetes' defaults and validation to an object, as its API server does.
func validate(typed runtime.Object) error {
	legacyscheme.Scheme.Default(typed)
	var wrong field.ErrorList
	switch typed := typed.(type) {
	case *appsv1.DaemonSet:
		var internal apps.DaemonSet
		if err := legacyscheme.Scheme.Convert(typed, &internal, nil); err != nil {
			return err
		}
		wrong = appsvalidation.ValidateDaemonSet(&internal, pod.GetValidationOptionsFromPodTemplate(&internal.Spec.Template, nil))
	case *corev1.ConfigMap:
		var internal core.ConfigMap
		if err := legacyscheme.Scheme.Convert(typed, &internal, nil); err != nil {
			return err
		}
		wrong = corevalidation.ValidateConfigMap(&internal)
	case *corev1.ServiceAccount:
		var internal core.ServiceAccount
		if err := legacyscheme.Scheme.Convert(typed, &internal, nil); err != nil {
			return err
		}
		wrong = corevalidation.ValidateServiceAccount(&internal)
	case *corev1.Namespace:
		var internal core.Namespace
		if err := legacyscheme.Scheme.Convert(typed, &internal, nil); err != nil {
			return err
		}
		wrong = corevalidation.ValidateNamespace(&internal)
	case *networkingv1.NetworkPolicy:
		var internal networking.NetworkPolicy
		if err := legacyscheme.Scheme.Convert(typed, &internal, nil); err != nil {
			return err
		}
		wrong = networkingvalidation.ValidateNetworkPolicy(&internal, networkingvalidation.NetworkPolicyValidationOptions{})
	default:
		return fmt.Errorf("there is no validation of %T", typed)
	}
	return wrong.ToAggregate()
}
