// Rings on a GPU: windows past the end, between kernels and within one.
#include "cuvmm/ring_buffer.hpp"

#include <gtest/gtest.h>

#include "gpu/checksum.hpp"
#include "on_gpu.hpp"

namespace cuvmm {
namespace {

using driver::call;
using driver::EntryPoint;

std::uint64_t checksum_of(std::span<const std::byte> bytes) {
  std::uint64_t sum = 0;
  const auto* data = reinterpret_cast<const unsigned char*>(bytes.data());
  for (std::uint64_t word = 0; word < gpu::checksum_words(bytes.size()); ++word)
    sum += gpu::checksum_term(gpu::checksum_word(data, bytes.size(), word), word);
  return sum;
}

class RingBufferOnGpu : public test::OnGpu {
 protected:
  RingBufferOnGpu() {
    call<EntryPoint::cuModuleLoadData>(api(), &module_, gpu::kernel_image().data());
    source_.append(ring_bytes);
    sum_.append(sizeof(std::uint64_t));
  }

  template <class Parameters>
  void run(Parameters parameters, std::uint64_t words) {
    abi::CUfunction function = nullptr;
    call<EntryPoint::cuModuleGetFunction>(api(), &function, module_, std::string(Parameters::kernel).c_str());
    const auto shape = gpu::launch_shape(words);
    auto arguments = gpu::arguments(parameters);
    call<EntryPoint::cuLaunchKernel>(api(), function, shape.blocks, 1U, 1U, shape.threads_per_block, 1U, 1U, 0U,
                                     nullptr, arguments.data(), nullptr);
  }
  std::uint64_t sum_after(const auto& run_kernels) {
    std::uint64_t sum = 0;
    copy_bytes_to_device(sum_, 0, std::as_bytes(std::span(&sum, 1)));
    run_kernels();
    copy_bytes_from_device(std::as_writable_bytes(std::span(&sum, 1)), sum_, 0);
    return sum;
  }

  static constexpr std::size_t ring_bytes = std::size_t{4} << 20;
  RingBuffer ring_ = RingBuffer::create(driver_, {.bytes = ring_bytes});
  MappedRange source_ = MappedRange::create(driver_, {.capacity = ring_bytes});
  MappedRange sum_ = MappedRange::create(driver_, {.capacity = 2_MiB});
  abi::CUmodule module_ = nullptr;
};

TEST_F(RingBufferOnGpu, KernelsProduceAndConsumeAroundTheEnd) {
  ASSERT_EQ(ring_.size(), ring_bytes);
  for (unsigned round = 0; round < 50; ++round) {
    const auto content = test::pattern(3'000'008, round);
    copy_bytes_to_device(source_, 0, content);
    const auto written = ring_.write_window(content.size());
    ASSERT_TRUE(written);
    run(gpu::CopyParameters{written->value, source_.address().value, content.size()}, content.size() / 8);
    ring_.commit(content.size());
    const auto read = ring_.read_window(content.size());
    ASSERT_TRUE(read);
    const std::uint64_t sum = sum_after([&] {
      run(gpu::ChecksumParameters{read->value, content.size(), 0, sum_.address().value}, content.size() / 8);
    });
    ring_.release(content.size());
    ASSERT_EQ(sum, checksum_of(content)) << "round " << round;
  }
  EXPECT_GT(ring_.write_position(), 30 * ring_.size());
}

TEST_F(RingBufferOnGpu, TheHostReadsWhatAKernelProducedAroundTheEnd) {
  ring_.commit(ring_bytes - 1000);
  ring_.release(ring_bytes - 1000);
  const auto content = test::pattern(ring_bytes, 3);
  copy_bytes_to_device(source_, 0, content);
  run(gpu::CopyParameters{ring_.write_window(ring_bytes)->value, source_.address().value, ring_bytes}, ring_bytes / 8);
  ring_.commit(ring_bytes);
  std::vector<std::byte> received(ring_bytes);
  EXPECT_EQ(ring_.read(received), ring_bytes);
  EXPECT_EQ(received, content);
}

// Written through the one address of each byte and read through the other, with the fence for aliases between.
TEST_F(RingBufferOnGpu, OneKernelUsesBothAddressesWithTheFence) {
  for (unsigned round = 0; round < 20; ++round) {
    const auto content = test::pattern(ring_bytes, 100 + round);
    copy_bytes_to_device(source_, 0, content);
    const DeviceAddress first = ring_.address(), second = ring_.address() + ring_bytes;
    const std::uint64_t sum = sum_after([&] {
      run(gpu::AliasParameters{first.value, source_.address().value, second.value, ring_bytes, 0, sum_.address().value},
          ring_bytes / 8);
    });
    ASSERT_EQ(sum, checksum_of(content)) << "round " << round;
  }
}

TEST_F(RingBufferOnGpu, TakesItsMemoryOnce) {
  std::size_t before = 0, after = 0, total = 0;
  call<EntryPoint::cuMemGetInfo>(api(), &before, &total);
  {
    const auto large = RingBuffer::create(driver_, {.bytes = 1_GiB});
    call<EntryPoint::cuMemGetInfo>(api(), &after, &total);
    EXPECT_GE(after + 1_GiB + 64_MiB, before);
  }
  call<EntryPoint::cuMemGetInfo>(api(), &after, &total);
  EXPECT_EQ(after, before);
}

}  // namespace
}  // namespace cuvmm
