#pragma once
// Writes plain integer code as LLVM IR: numbers, addresses, conditions, loops. Variables are stack slots,
// which LLVM turns into registers. Private to emit_llvm_driver.cc.
#include <fmt/format.h>

#include <functional>
#include <string>

namespace cellc {

class DriverText {
 public:
  using Body = std::function<void()>;

  /// `text` is an instruction without its result; the name of the result.
  template <typename... Args>
  std::string value(fmt::format_string<Args...> format, Args&&... args) {
    const std::string name = fmt::format("%v{}", counter_++);
    body_ += fmt::format("  {} = {}\n", name, fmt::format(format, std::forward<Args>(args)...));
    return name;
  }
  template <typename... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    body_ += "  " + fmt::format(format, std::forward<Args>(args)...) + "\n";
  }

  std::string add(const std::string& a, const std::string& b) { return value("add i64 {}, {}", a, b); }
  std::string sub(const std::string& a, const std::string& b) { return value("sub i64 {}, {}", a, b); }
  std::string mul(const std::string& a, const std::string& b) { return value("mul i64 {}, {}", a, b); }
  std::string is(const char* predicate, const std::string& a, const std::string& b) {
    return value("icmp {} i64 {}, {}", predicate, a, b);
  }
  std::string is_null(const std::string& p) { return value("icmp eq ptr {}, null", p); }
  std::string either(const std::string& a, const std::string& b) { return value("or i1 {}, {}", a, b); }
  std::string both(const std::string& a, const std::string& b) { return value("and i1 {}, {}", a, b); }
  std::string negated(const std::string& c) { return value("xor i1 {}, true", c); }
  std::string pick(const std::string& c, const std::string& a, const std::string& b) {
    return value("select i1 {}, i64 {}, i64 {}", c, a, b);
  }
  std::string pick_address(const std::string& c, const std::string& a, const std::string& b) {
    return value("select i1 {}, ptr {}, ptr {}", c, a, b);
  }
  std::string lesser(const std::string& a, const std::string& b) { return pick(is("slt", a, b), a, b); }
  /// `p` moved by bytes.
  std::string at(const std::string& p, const std::string& bytes) {
    return value("getelementptr i8, ptr {}, i64 {}", p, bytes);
  }
  std::string number_at(const std::string& p, int word) { return value("load i64, ptr {}, align 8", at_word(p, word)); }
  std::string address_at(const std::string& p, int word) {
    return value("load ptr, ptr {}, align 8", at_word(p, word));
  }
  std::string at_word(const std::string& p, int word) { return value("getelementptr i64, ptr {}, i64 {}", p, word); }
  void move(const std::string& to, const std::string& from, const std::string& bytes) {
    line("call void @llvm.memmove.p0.p0.i64(ptr {}, ptr {}, i64 {}, i1 false)", to, from, bytes);
  }
  void clear(const std::string& p, const std::string& bytes) {
    line("call void @llvm.memset.p0.i64(ptr {}, i8 0, i64 {}, i1 false)", p, bytes);
  }

  /// A variable of 8 bytes.
  std::string variable() { return room("i64"); }
  std::string room(const std::string& type) {
    const std::string name = fmt::format("%room{}", counter_++);
    rooms_ += fmt::format("  {} = alloca {}, align 8\n", name, type);
    return name;
  }
  std::string get(const std::string& variable) { return value("load i64, ptr {}, align 8", variable); }
  void set(const std::string& variable, const std::string& v) { line("store i64 {}, ptr {}, align 8", v, variable); }

  void when(const std::string& condition, const Body& body) {
    const int n = counter_++;
    line("br i1 {}, label %then{}, label %end{}", condition, n, n);
    label("then", n);
    body();
    line("br label %end{}", n);
    label("end", n);
  }
  /// Gives an error code where the condition holds.
  void fail_when(const std::string& condition, int code) {
    const int n = counter_++;
    line("br i1 {}, label %fail{}, label %ok{}", condition, n, n);
    label("fail", n);
    line("ret i32 {}", code);
    label("ok", n);
  }
  /// While what `condition` writes and gives holds.
  void loop(const std::function<std::string()>& condition, const Body& body) {
    const int n = counter_++;
    line("br label %loop{}", n);
    label("loop", n);
    const std::string more = condition();
    line("br i1 {}, label %body{}, label %end{}", more, n, n);
    label("body", n);
    body();
    line("br label %loop{}", n);
    label("end", n);
  }
  /// For 0 … count - 1.
  void count(const std::string& end, const std::function<void(const std::string&)>& body) {
    const std::string i = variable();
    set(i, "0");
    std::string now;
    loop(
        [&] {
          now = get(i);
          return is("slt", now, end);
        },
        [&] {
          body(now);
          set(i, add(now, "1"));
        });
  }

  std::string function(const std::string& head) const { return head + " {\nentry:\n" + rooms_ + body_ + "}\n\n"; }

 private:
  void label(const char* stem, int n) { body_ += fmt::format("{}{}:\n", stem, n); }

  std::string rooms_, body_;
  int counter_ = 0;
};

}  // namespace cellc
