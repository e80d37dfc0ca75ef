// Command csi-driver is a CSI driver for tests of volumes on one node.
//
// A volume is a tmpfs of its size, so `df` in a pod shows the size and writing more fails. Growing
// it needs the node, as with the file system on a block device. A snapshot is a copy of the files.
// Nothing survives a restart of the node: the driver is no place for data that somebody needs.
package main

import (
	"context"
	"flag"
	"log"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

const version = "v1"

// driver implements the three services of CSI, and the registration with the kubelet.
type driver struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedControllerServer
	csi.UnimplementedNodeServer
	registration.UnimplementedRegistrationServer

	name, node, endpoint string
	volumes, snapshots   *store
	// Calls for different volumes are serialized as well: all of them are short.
	mutex sync.Mutex
}

func main() {
	name := flag.String("name", "tmpfs.csi.slipway.dev", "name of the driver")
	node := flag.String("node", "", "name of the node")
	data := flag.String("data", "", "directory of volumes and snapshots, the same on the node")
	endpoint := flag.String("endpoint", "", "path of the socket of the driver, as on the node")
	registry := flag.String("registry", "", "directory in which the kubelet looks for drivers")
	flag.Parse()

	served := &driver{
		name:      *name,
		node:      *node,
		endpoint:  *endpoint,
		volumes:   newStore(filepath.Join(*data, "volumes")),
		snapshots: newStore(filepath.Join(*data, "snapshots")),
	}
	server := grpc.NewServer(grpc.UnaryInterceptor(logFailures))
	csi.RegisterIdentityServer(server, served)
	csi.RegisterControllerServer(server, served)
	csi.RegisterNodeServer(server, served)
	go serve(server, *endpoint)
	if *registry != "" {
		registrar := grpc.NewServer()
		registration.RegisterRegistrationServer(registrar, served)
		go serve(registrar, filepath.Join(*registry, *name+"-reg.sock"))
	}

	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	<-signals
	server.GracefulStop()
}

func serve(server *grpc.Server, path string) {
	// A socket of the previous process cannot be listened on.
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		log.Fatal(err)
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		log.Fatal(err)
	}
	log.Printf("Serving on %s", path)
	if err := server.Serve(listener); err != nil {
		log.Fatal(err)
	}
}

func logFailures(
	ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler,
) (any, error) {
	response, err := handle(ctx, request)
	if err != nil {
		log.Printf("%s failed: %v", info.FullMethod, err)
	}
	return response, err
}

func (d *driver) GetPluginInfo(
	context.Context, *csi.GetPluginInfoRequest,
) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: d.name, VendorVersion: version}, nil
}

func (d *driver) GetPluginCapabilities(
	context.Context, *csi.GetPluginCapabilitiesRequest,
) (*csi.GetPluginCapabilitiesResponse, error) {
	service := func(kind csi.PluginCapability_Service_Type) *csi.PluginCapability {
		return &csi.PluginCapability{Type: &csi.PluginCapability_Service_{
			Service: &csi.PluginCapability_Service{Type: kind},
		}}
	}
	return &csi.GetPluginCapabilitiesResponse{Capabilities: []*csi.PluginCapability{
		service(csi.PluginCapability_Service_CONTROLLER_SERVICE),
		service(csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS),
		{Type: &csi.PluginCapability_VolumeExpansion_{
			VolumeExpansion: &csi.PluginCapability_VolumeExpansion{
				Type: csi.PluginCapability_VolumeExpansion_ONLINE,
			},
		}},
	}}, nil
}

func (d *driver) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{}, nil
}

// GetInfo tells the kubelet where the driver listens.
func (d *driver) GetInfo(
	context.Context, *registration.InfoRequest,
) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{
		Type:              registration.CSIPlugin,
		Name:              d.name,
		Endpoint:          d.endpoint,
		SupportedVersions: []string{"1.0.0"},
	}, nil
}

// NotifyRegistrationStatus ends the process if the kubelet refuses the driver.
func (d *driver) NotifyRegistrationStatus(
	_ context.Context, status *registration.RegistrationStatus,
) (*registration.RegistrationStatusResponse, error) {
	if !status.PluginRegistered {
		log.Fatalf("The kubelet refused the driver: %s", status.Error)
	}
	return &registration.RegistrationStatusResponse{}, nil
}
