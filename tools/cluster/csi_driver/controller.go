package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
)

const (
	topologyKey = "csi.slipway.dev/node"
	defaultSize = 1 << 30
	pageSize    = 4096 // A tmpfs has whole pages.
)

func (d *driver) ControllerGetCapabilities(
	context.Context, *csi.ControllerGetCapabilitiesRequest,
) (*csi.ControllerGetCapabilitiesResponse, error) {
	response := &csi.ControllerGetCapabilitiesResponse{}
	for _, kind := range []csi.ControllerServiceCapability_RPC_Type{
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME,
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT,
		csi.ControllerServiceCapability_RPC_CLONE_VOLUME,
		csi.ControllerServiceCapability_RPC_EXPAND_VOLUME,
	} {
		response.Capabilities = append(response.Capabilities, &csi.ControllerServiceCapability{
			Type: &csi.ControllerServiceCapability_Rpc{
				Rpc: &csi.ControllerServiceCapability_RPC{Type: kind},
			},
		})
	}
	return response, nil
}

func (d *driver) CreateVolume(
	_ context.Context, request *csi.CreateVolumeRequest,
) (*csi.CreateVolumeResponse, error) {
	if request.Name == "" || len(request.VolumeCapabilities) == 0 {
		return nil, status.Error(codes.InvalidArgument, "name and volume_capabilities are required")
	}
	for _, capability := range request.VolumeCapabilities {
		if capability.GetBlock() != nil {
			return nil, status.Error(codes.InvalidArgument, "volumes are file systems, not devices")
		}
	}
	size, err := chooseSize(request.CapacityRange)
	if err != nil {
		return nil, err
	}
	d.mutex.Lock()
	defer d.mutex.Unlock()

	id := identify(request.Name)
	source := nameSource(request.VolumeContentSource)
	found, err := d.volumes.read(id)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := d.makeVolume(id, size, request.VolumeContentSource); err != nil {
			return nil, err
		}
	case err != nil:
		return nil, status.Error(codes.Internal, err.Error())
	case found.Source != source || !covers(request.CapacityRange, found.Size):
		return nil, status.Errorf(
			codes.AlreadyExists, "volume %s exists with another size or source", request.Name)
	default:
		size = found.Size
	}
	return &csi.CreateVolumeResponse{Volume: &csi.Volume{
		VolumeId:           id,
		CapacityBytes:      size,
		VolumeContext:      request.Parameters,
		ContentSource:      request.VolumeContentSource,
		AccessibleTopology: []*csi.Topology{d.topology()},
	}}, nil
}

// makeVolume mounts the tmpfs of a volume and fills it from its source.
func (d *driver) makeVolume(id string, size int64, source *csi.VolumeContentSource) error {
	from, err := d.findSource(source, size)
	if err != nil {
		return err
	}
	// What a failed attempt left has no record.
	if err := d.volumes.remove(id); err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	path := d.volumes.path(id)
	if err := mountTmpfs(path, size); err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	if from != "" {
		if err := copyTree(from, path); err != nil {
			return status.Errorf(codes.Internal, "copying %s: %v", from, err)
		}
	}
	written := &record{Size: size, Source: nameSource(source), Created: time.Now()}
	if err := d.volumes.write(id, written); err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	return nil
}

// findSource returns the directory to copy, or nothing for an empty volume.
func (d *driver) findSource(source *csi.VolumeContentSource, size int64) (string, error) {
	if source == nil {
		return "", nil
	}
	place, id := d.volumes, source.GetVolume().GetVolumeId()
	if source.GetSnapshot() != nil {
		place, id = d.snapshots, source.GetSnapshot().GetSnapshotId()
	}
	found, err := place.read(id)
	if errors.Is(err, fs.ErrNotExist) {
		return "", status.Errorf(codes.NotFound, "%s does not exist", nameSource(source))
	}
	if err != nil {
		return "", status.Error(codes.Internal, err.Error())
	}
	if found.Size > size {
		return "", status.Errorf(codes.OutOfRange, "the source has %d bytes", found.Size)
	}
	if place == d.volumes && !isMounted(place.path(id)) {
		return "", errLost(id)
	}
	return place.path(id), nil
}

func (d *driver) DeleteVolume(
	_ context.Context, request *csi.DeleteVolumeRequest,
) (*csi.DeleteVolumeResponse, error) {
	if request.VolumeId == "" {
		return nil, status.Error(codes.InvalidArgument, "volume_id is required")
	}
	d.mutex.Lock()
	defer d.mutex.Unlock()
	if err := d.volumes.remove(request.VolumeId); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &csi.DeleteVolumeResponse{}, nil
}

func (d *driver) ValidateVolumeCapabilities(
	_ context.Context, request *csi.ValidateVolumeCapabilitiesRequest,
) (*csi.ValidateVolumeCapabilitiesResponse, error) {
	if request.VolumeId == "" || len(request.VolumeCapabilities) == 0 {
		return nil, status.Error(
			codes.InvalidArgument, "volume_id and volume_capabilities are required")
	}
	if _, err := d.findVolume(request.VolumeId); err != nil {
		return nil, err
	}
	return &csi.ValidateVolumeCapabilitiesResponse{
		Confirmed: &csi.ValidateVolumeCapabilitiesResponse_Confirmed{
			VolumeCapabilities: request.VolumeCapabilities,
		},
	}, nil
}

// ControllerExpandVolume only notes the size; the node then grows the tmpfs.
func (d *driver) ControllerExpandVolume(
	_ context.Context, request *csi.ControllerExpandVolumeRequest,
) (*csi.ControllerExpandVolumeResponse, error) {
	if request.VolumeId == "" || request.CapacityRange == nil {
		return nil, status.Error(codes.InvalidArgument, "volume_id and capacity_range are required")
	}
	size, err := chooseSize(request.CapacityRange)
	if err != nil {
		return nil, err
	}
	d.mutex.Lock()
	defer d.mutex.Unlock()
	found, err := d.findVolume(request.VolumeId)
	if err != nil {
		return nil, err
	}
	if size > found.Size {
		found.Size = size
		if err := d.volumes.write(request.VolumeId, found); err != nil {
			return nil, status.Error(codes.Internal, err.Error())
		}
	}
	return &csi.ControllerExpandVolumeResponse{
		CapacityBytes: found.Size, NodeExpansionRequired: true,
	}, nil
}

func (d *driver) CreateSnapshot(
	_ context.Context, request *csi.CreateSnapshotRequest,
) (*csi.CreateSnapshotResponse, error) {
	if request.Name == "" || request.SourceVolumeId == "" {
		return nil, status.Error(codes.InvalidArgument, "name and source_volume_id are required")
	}
	d.mutex.Lock()
	defer d.mutex.Unlock()
	id := identify(request.Name)
	found, err := d.snapshots.read(id)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if found, err = d.makeSnapshot(id, request.SourceVolumeId); err != nil {
			return nil, err
		}
	case err != nil:
		return nil, status.Error(codes.Internal, err.Error())
	case found.Source != request.SourceVolumeId:
		return nil, status.Errorf(
			codes.AlreadyExists, "snapshot %s exists of another volume", request.Name)
	}
	return &csi.CreateSnapshotResponse{Snapshot: &csi.Snapshot{
		SnapshotId:     id,
		SourceVolumeId: found.Source,
		SizeBytes:      found.Size,
		CreationTime:   timestamppb.New(found.Created),
		ReadyToUse:     true,
	}}, nil
}

func (d *driver) makeSnapshot(id, volume string) (*record, error) {
	of, err := d.findVolume(volume)
	if err != nil {
		return nil, err
	}
	if !isMounted(d.volumes.path(volume)) {
		return nil, errLost(volume)
	}
	if err := d.snapshots.remove(id); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	if err := copyTree(d.volumes.path(volume), d.snapshots.path(id)); err != nil {
		return nil, status.Errorf(codes.Internal, "copying volume %s: %v", volume, err)
	}
	made := &record{Size: of.Size, Source: volume, Created: time.Now()}
	if err := d.snapshots.write(id, made); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return made, nil
}

func (d *driver) DeleteSnapshot(
	_ context.Context, request *csi.DeleteSnapshotRequest,
) (*csi.DeleteSnapshotResponse, error) {
	if request.SnapshotId == "" {
		return nil, status.Error(codes.InvalidArgument, "snapshot_id is required")
	}
	d.mutex.Lock()
	defer d.mutex.Unlock()
	if err := d.snapshots.remove(request.SnapshotId); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &csi.DeleteSnapshotResponse{}, nil
}

func (d *driver) findVolume(id string) (*record, error) {
	found, err := d.volumes.read(id)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, status.Errorf(codes.NotFound, "volume %s does not exist", id)
	}
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return found, nil
}

func (d *driver) topology() *csi.Topology {
	return &csi.Topology{Segments: map[string]string{topologyKey: d.node}}
}

func errLost(id string) error {
	return status.Errorf(
		codes.DataLoss, "volume %s was in the memory of the node, which has restarted", id)
}

// chooseSize returns the least size in whole pages that a range asks for.
func chooseSize(wanted *csi.CapacityRange) (int64, error) {
	size := max(wanted.GetRequiredBytes(), 0)
	if size == 0 {
		size = defaultSize
		if limit := wanted.GetLimitBytes(); limit > 0 {
			size = min(size, limit/pageSize*pageSize)
		}
	}
	size = (size + pageSize - 1) / pageSize * pageSize
	if !covers(wanted, size) {
		return 0, status.Errorf(codes.OutOfRange, "no size is within %v", wanted)
	}
	return size, nil
}

func covers(wanted *csi.CapacityRange, size int64) bool {
	limit := wanted.GetLimitBytes()
	return size >= wanted.GetRequiredBytes() && (limit == 0 || size <= limit)
}

func nameSource(source *csi.VolumeContentSource) string {
	switch {
	case source.GetVolume() != nil:
		return "volume " + source.GetVolume().GetVolumeId()
	case source.GetSnapshot() != nil:
		return "snapshot " + source.GetSnapshot().GetSnapshotId()
	}
	return ""
}

func mountTmpfs(path string, size int64) error {
	if err := os.MkdirAll(path, 0o755); err != nil {
		return err
	}
	return mount("tmpfs", path, "tmpfs", 0, fmt.Sprintf("mode=0777,size=%d", size))
}
