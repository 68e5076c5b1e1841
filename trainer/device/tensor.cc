#include "trainer/device/tensor.h"

#include <algorithm>
#include <utility>

#include "trainer/device/device.h"

namespace moetrain {

Tensor& Tensor::operator=(Tensor&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(memory_, other.memory_);
  std::swap(room_, other.room_);
  std::swap(size_, other.size_);
  std::swap(type_, other.type_);
  return *this;
}

Tensor::~Tensor() {
  if (memory_ != nullptr) device_->free(memory_);
}

void Tensor::reshape(Device& device, Type type, size_t size) {
  const size_t wanted = size * bytes_of(type);
  if (device_ != &device || wanted > room_) {
    // Regrowth leaves slack, since sizes change from step to step, like the rows of an expert.
    const size_t room = std::max(wanted, device_ == &device ? room_ + room_ / 4 : 0);
    if (memory_ != nullptr) device_->free(memory_);
    device_ = &device;
    memory_ = room == 0 ? nullptr : device.allocate(room);
    room_ = memory_ == nullptr ? 0 : room;
  }
  type_ = type;
  size_ = size;
}

void Tensor::write_bytes(std::span<const std::byte> bytes) {
  CKPT_ASSERT(bytes.size() == this->bytes());
  if (!empty()) device_->upload(memory_, bytes);
}

Status Tensor::read_bytes(std::span<std::byte> bytes) const {
  CKPT_ASSERT(bytes.size() == this->bytes());
  if (empty()) return {};
  return device_->download(bytes, memory_);
}

void Tensor::zero() {
  if (!empty()) device_->zero(memory_, bytes());
}

void Tensor::copy_from(const Tensor& other) {
  if (other.device_ == nullptr) {
    size_ = 0;
    return;
  }
  reshape(*other.device_, other.type_, other.size_);
  if (!empty()) device_->copy(memory_, other.memory_, bytes());
}

void Tensor::check_host() const {
  CKPT_ASSERT_MSG(device_ == nullptr || device_->is_host(), "memory of a device is not the host's");
}

}  // namespace moetrain
