#include "conformance/sequences/player.hpp"

#include <unistd.h>

#include <algorithm>

namespace cuvmm::conformance {
namespace {

constexpr std::size_t slack_bytes = 65536;
constexpr CUdeviceptr page_bytes = 4096;

std::string hexadecimal(std::uint64_t value) {
  constexpr char digits[] = "0123456789abcdef";
  std::string text;
  do {
    text.insert(text.begin(), digits[value % 16]);
    value /= 16;
  } while (value != 0);
  return text;
}

}  // namespace

Player::Player(std::shared_ptr<driver::Interface> driver, int devices)
    : driver_(std::move(driver)),
      buffer_(new unsigned char[static_cast<std::size_t>(most_copied_bytes) + slack_bytes]{}) {
  require("cuInit", driver_->cuInit(0));
  for (int device = 0; device < devices; ++device) {
    CUcontext context = nullptr;
    require("cuDevicePrimaryCtxRetain", driver_->cuDevicePrimaryCtxRetain(&context, device));
    contexts_.push_back(context);
  }
  make_current(0);
}

Player::~Player() = default;

void Player::require(const char* step, CUresult result) const {
  if (result != CUDA_SUCCESS) throw NotClean(std::string{step} + " answers " + result_name(result));
}

void Player::make_current(int device) {
  require("cuCtxSetCurrent", driver_->cuCtxSetCurrent(device < 0 ? nullptr : context(device)));
}

CUstream Player::stream(std::int64_t slot) const {
  return slot == legacy_stream_pending ? nullptr : streams.at(static_cast<std::size_t>(slot));
}

CUdeviceptr Player::address(std::int64_t space, std::int64_t at) const {
  if (space == space::null) return static_cast<CUdeviceptr>(at);
  if (space == space::nowhere) return nowhere + static_cast<CUdeviceptr>(at);
  return bases.at(static_cast<std::size_t>(space)) + static_cast<CUdeviceptr>(at);
}

std::string Player::relative(CUdeviceptr address) const {
  if (address == 0) return "0";
  for (const ReservedAddresses& each : world->reservations) {
    const CUdeviceptr base = bases.at(static_cast<std::size_t>(each.place.space));
    if (address >= base && address < base + static_cast<CUdeviceptr>(each.bytes))
      return std::to_string(each.place.space) + "_" + hexadecimal((address - base) / page_bytes) +
             (address % page_bytes == 0 ? "" : "+");
  }
  return "?";
}

std::string Player::same_handle(CUmemGenericAllocationHandle handle, std::int64_t but_slot) const {
  for (std::size_t slot = 0; slot < handles.size(); ++slot)
    if (static_cast<std::int64_t>(slot) != but_slot && world->handles.at(slot) && handles.at(slot) == handle)
      return std::to_string(slot);
  return "*";
}

void Player::settle() {
  for (std::size_t device = 0; device < contexts_.size(); ++device) {
    make_current(static_cast<int>(device));
    require("cuCtxSynchronize", driver_->cuCtxSynchronize());
  }
  make_current(world->current);
}

void Player::clean_up(const World& world_left) {
  world = &world_left;
  make_current(0);
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;  // as threads begin with it
  require("cuThreadExchangeStreamCaptureMode", driver_->cuThreadExchangeStreamCaptureMode(&mode));
  end_streams(world_left);
  for (std::size_t device = 0; device < contexts_.size(); ++device) {
    make_current(static_cast<int>(device));
    require("cuCtxSynchronize", driver_->cuCtxSynchronize());
  }
  make_current(0);
  end_memory(world_left);
}

void Player::end_streams(const World& world_left) {
  if (world_left.captures()) {
    CUgraph left = nullptr;
    const auto stream = streams.at(static_cast<std::size_t>(world_left.capturing));
    static_cast<void>(driver_->cuStreamEndCapture(stream, &left));  // fails if the capture is invalidated
    if (left != nullptr) require("cuGraphDestroy", driver_->cuGraphDestroy(left));
  }
  if (world_left.graph.executable) require("cuGraphExecDestroy", driver_->cuGraphExecDestroy(graph_exec));
  if (world_left.graph.exists) require("cuGraphDestroy", driver_->cuGraphDestroy(graph));
  for (std::size_t slot = 0; slot < streams.size(); ++slot)
    if (world_left.streams.at(slot).exists) require("cuStreamDestroy", driver_->cuStreamDestroy(streams.at(slot)));
  for (std::size_t slot = 0; slot < events.size(); ++slot)
    if (world_left.events.at(slot).exists) require("cuEventDestroy", driver_->cuEventDestroy(events.at(slot)));
}

void Player::end_memory(const World& world_left) {
  for (const MappedMemory& each : world_left.mappings)
    require("cuMemUnmap",
            driver_->cuMemUnmap(address(each.place.space, each.place.at), static_cast<std::size_t>(each.bytes)));
  for (const ReservedAddresses& each : world_left.reservations)
    require("cuMemAddressFree",
            driver_->cuMemAddressFree(address(each.place.space, each.place.at), static_cast<std::size_t>(each.bytes)));
  for (std::size_t slot = 0; slot < handles.size(); ++slot)
    if (world_left.handles.at(slot)) require("cuMemRelease", driver_->cuMemRelease(handles.at(slot)));
  for (std::size_t slot = 0; slot < descriptors.size(); ++slot)
    if (world_left.descriptors.at(slot)) ::close(descriptors.at(slot));
}

}  // namespace cuvmm::conformance
