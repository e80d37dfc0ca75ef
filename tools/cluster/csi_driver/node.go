package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func (d *driver) NodeGetInfo(
	context.Context, *csi.NodeGetInfoRequest,
) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: d.node, AccessibleTopology: d.topology()}, nil
}

func (d *driver) NodeGetCapabilities(
	context.Context, *csi.NodeGetCapabilitiesRequest,
) (*csi.NodeGetCapabilitiesResponse, error) {
	expand := csi.NodeServiceCapability_RPC_EXPAND_VOLUME
	return &csi.NodeGetCapabilitiesResponse{Capabilities: []*csi.NodeServiceCapability{
		{Type: &csi.NodeServiceCapability_Rpc{Rpc: &csi.NodeServiceCapability_RPC{Type: expand}}},
	}}, nil
}

func (d *driver) NodePublishVolume(
	_ context.Context, request *csi.NodePublishVolumeRequest,
) (*csi.NodePublishVolumeResponse, error) {
	if request.VolumeId == "" || request.TargetPath == "" || request.VolumeCapability == nil {
		return nil, status.Error(
			codes.InvalidArgument, "volume_id, target_path and volume_capability are required")
	}
	d.mutex.Lock()
	defer d.mutex.Unlock()
	if _, err := d.findVolume(request.VolumeId); err != nil {
		return nil, err
	}
	source := d.volumes.path(request.VolumeId)
	if !isMounted(source) {
		return nil, errLost(request.VolumeId)
	}
	if isMounted(request.TargetPath) {
		return &csi.NodePublishVolumeResponse{}, nil
	}
	if err := publish(source, request.TargetPath, request.Readonly); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &csi.NodePublishVolumeResponse{}, nil
}

func publish(source, target string, readonly bool) error {
	if err := os.MkdirAll(target, 0o755); err != nil {
		return err
	}
	if err := mount(source, target, "", syscall.MS_BIND, ""); err != nil || !readonly {
		return err
	}
	// A bind mount ignores the flag until it is mounted again.
	flags := uintptr(syscall.MS_BIND | syscall.MS_REMOUNT | syscall.MS_RDONLY)
	return mount("", target, "", flags, "")
}

func (d *driver) NodeUnpublishVolume(
	_ context.Context, request *csi.NodeUnpublishVolumeRequest,
) (*csi.NodeUnpublishVolumeResponse, error) {
	if request.VolumeId == "" || request.TargetPath == "" {
		return nil, status.Error(codes.InvalidArgument, "volume_id and target_path are required")
	}
	d.mutex.Lock()
	defer d.mutex.Unlock()
	err := unmount(request.TargetPath)
	if err == nil {
		// Not os.RemoveAll: what is in a directory that is still mounted must stay.
		err = os.Remove(request.TargetPath)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &csi.NodeUnpublishVolumeResponse{}, nil
}

// NodeExpandVolume grows the tmpfs, which every pod that mounts the volume sees.
func (d *driver) NodeExpandVolume(
	_ context.Context, request *csi.NodeExpandVolumeRequest,
) (*csi.NodeExpandVolumeResponse, error) {
	if request.VolumeId == "" || request.VolumePath == "" {
		return nil, status.Error(codes.InvalidArgument, "volume_id and volume_path are required")
	}
	d.mutex.Lock()
	defer d.mutex.Unlock()
	found, err := d.findVolume(request.VolumeId)
	if err != nil {
		return nil, err
	}
	path := d.volumes.path(request.VolumeId)
	if !isMounted(path) {
		return nil, errLost(request.VolumeId)
	}
	options := fmt.Sprintf("size=%d", found.Size)
	if err := mount("tmpfs", path, "tmpfs", syscall.MS_REMOUNT, options); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &csi.NodeExpandVolumeResponse{CapacityBytes: found.Size}, nil
}

func mount(source, target, kind string, flags uintptr, options string) error {
	if err := syscall.Mount(source, target, kind, flags, options); err != nil {
		return fmt.Errorf("mounting %s: %w", target, err)
	}
	return nil
}
