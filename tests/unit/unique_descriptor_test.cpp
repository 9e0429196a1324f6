#include "cuvmm/unique_descriptor.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "recording_handler.hpp"

namespace cuvmm {
namespace {

int open_something() {
  return ::open("/dev/null", O_RDONLY | O_CLOEXEC);
}

bool is_open(int descriptor) {
  return ::fcntl(descriptor, F_GETFD) >= 0;
}

class UniqueDescriptorTest : public testing::Test {
 protected:
  test::RecordingHandler clean_up_;
};

TEST_F(UniqueDescriptorTest, ClosesItsDescriptorOnce) {
  const int descriptor = open_something();
  {
    const UniqueDescriptor owner(descriptor);
    EXPECT_EQ(owner.get(), descriptor);
    EXPECT_TRUE(owner);
    EXPECT_TRUE(is_open(descriptor));
  }
  EXPECT_FALSE(is_open(descriptor));
  EXPECT_TRUE(clean_up_.failures.empty());
}

TEST_F(UniqueDescriptorTest, MovingLeavesOneOwner) {
  const int first = open_something();
  const int second = open_something();
  UniqueDescriptor a(first);
  UniqueDescriptor b(second);
  a = std::move(b);
  EXPECT_FALSE(is_open(first));
  EXPECT_EQ(a.get(), second);
  UniqueDescriptor& itself = a;
  a = std::move(itself);
  EXPECT_TRUE(is_open(second));
  const UniqueDescriptor c(std::move(a));
  EXPECT_EQ(c.get(), second);
}

TEST_F(UniqueDescriptorTest, WhatIsGivenOutStaysOpen) {
  const int descriptor = open_something();
  {
    UniqueDescriptor owner(descriptor);
    EXPECT_EQ(owner.give_out(), descriptor);
    EXPECT_FALSE(owner);
    EXPECT_EQ(owner.get(), -1);
  }
  EXPECT_TRUE(is_open(descriptor));
  ::close(descriptor);
}

TEST_F(UniqueDescriptorTest, ANegativeNumberIsNone) {
  const UniqueDescriptor none(-7);
  EXPECT_FALSE(none);
  EXPECT_EQ(none.get(), -1);
  EXPECT_FALSE(UniqueDescriptor());
}

TEST_F(UniqueDescriptorTest, ACloseThatFailsIsReported) {
  const int descriptor = open_something();
  {
    const UniqueDescriptor owner(descriptor);
    ::close(descriptor);
  }
  ASSERT_EQ(clean_up_.failures.size(), 1u);
  EXPECT_NE(clean_up_.failures[0].arguments.find(std::to_string(descriptor)), std::string::npos);
}

}  // namespace
}  // namespace cuvmm
