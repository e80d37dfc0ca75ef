// Command library-peer fills a cache of pods with controller-runtime, for `./dev bench library`.
//
// It keeps of each pod what the cache of podset keeps, and prints its figures as JSON.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// shrink removes what podset does not read.
func shrink(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	pod.ManagedFields = nil
	pod.Annotations = nil
	pod.Spec = corev1.PodSpec{NodeName: pod.Spec.NodeName}
	pod.Status = corev1.PodStatus{
		Phase:             pod.Status.Phase,
		PodIP:             pod.Status.PodIP,
		Conditions:        keepReady(pod.Status.Conditions),
		ContainerStatuses: nil,
	}
	return pod, nil
}

func keepReady(conditions []corev1.PodCondition) []corev1.PodCondition {
	for _, condition := range conditions {
		if condition.Type == corev1.PodReady {
			return []corev1.PodCondition{condition}
		}
	}
	return nil
}

// readMemory returns fields of /proc/self/status in MiB.
func readMemory() (map[string]float64, error) {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return nil, err
	}
	memory := map[string]float64{}
	for _, line := range strings.Split(string(text), "\n") {
		if fields := strings.Fields(line); len(fields) == 3 && fields[2] == "kB" {
			kib, err := strconv.ParseFloat(fields[1], 64)
			if err != nil {
				return nil, err
			}
			memory[strings.TrimSuffix(fields[0], ":")] = kib / 1024
		}
	}
	return memory, nil
}

func run(url string) error {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return err
	}
	version := schema.GroupVersion{Version: "v1"}
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{version})
	mapper.Add(version.WithKind("Pod"), meta.RESTScopeNamespace)
	config := &rest.Config{Host: url, QPS: -1}
	config.ContentType = runtime.ContentTypeJSON
	options := cache.Options{
		Scheme:   scheme,
		Mapper:   mapper,
		ByObject: map[client.Object]cache.ByObject{&corev1.Pod{}: {Transform: shrink}},
	}
	pods, err := cache.New(config, options)
	if err != nil {
		return err
	}
	before, err := readMemory()
	if err != nil {
		return err
	}
	started := time.Now()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go func() { _ = pods.Start(ctx) }()
	if _, err := pods.GetInformer(ctx, &corev1.Pod{}); err != nil {
		return err
	}
	if !pods.WaitForCacheSync(ctx) {
		return fmt.Errorf("the cache was not filled")
	}
	seconds := time.Since(started).Seconds()
	after, err := readMemory()
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]float64{
		"seconds":      seconds,
		"base MiB":     before["VmRSS"],
		"resident MiB": after["VmRSS"],
		"peak MiB":     after["VmHWM"],
	})
}

func main() {
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
