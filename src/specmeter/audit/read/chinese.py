"""Words of Chinese headings in English, so that one list of columns serves both languages.

Traditional characters are made simplified first. A heading is read from left to right, the longest known word first;
characters that stand in no known word are left out and leave a mark, so that nothing is understood by half.
"""

from __future__ import annotations

import re

_SIMPLIFIED = str.maketrans(
    "線裝顯備機長設測準總數據務並發類帶寬詞標輪採納語較無輸對內別碼樣歸稱溫選試",
    "线装显备机长设测准总数据务并发类带宽词标轮采纳语较无输对内别码样归称温选试",
)
_WORDS = {
    "平均接受长度": "mean acceptance length", "平均接受率": "mean acceptance rate", "平均": "mean",
    "接受长度": "acceptance length", "接收长度": "acceptance length", "接受率": "acceptance rate",
    "接收率": "acceptance rate", "采纳率": "acceptance rate", "命中率": "acceptance rate", "接受": "accepted",
    "加速比": "speedup", "加速倍数": "speedup", "加速倍率": "speedup", "加速": "speedup", "提速": "gain",
    "相对基线": "vs baseline", "较基线": "vs baseline", "提升": "gain", "增益": "gain",
    "基线": "baseline", "基准": "baseline", "无推测": "no spec", "无投机": "no spec", "不使用推测": "no spec",
    "不投机": "no spec", "无草稿": "no draft", "有草稿": "with draft", "原始": "original", "原生": "vanilla",
    "自回归": "ar",
    "推测解码": "spec", "投机解码": "spec", "投机采样": "spec", "推测": "spec", "投机": "spec",
    "草稿模型": "draft model", "草稿长度": "draft length", "草稿数": "draft tokens",
    "草稿token数": "draft tokens", "投机步数": "num speculative steps", "推测步数": "num speculative steps",
    "草稿": "draft",
    "候选长度": "draft length", "推测长度": "draft length", "步长": "draft length",
    "目标模型": "target model", "主模型": "target model", "目标": "target", "模型": "model",
    "生成速度": "generation speed", "解码速度": "decode speed", "输出速度": "output speed", "推理速度": "speed",
    "速度": "speed", "速率": "speed", "吞吐量": "throughput", "吞吐": "throughput",
    "每步token": "tokens per step", "方法": "method", "算法": "method", "配置": "config", "名称": "name",
    "设备": "device", "装置": "device", "显卡": "gpu", "硬件": "hardware", "引擎": "engine",
    "框架": "framework", "量化": "quant",
    "温度": "temperature", "任务": "task", "测试": "task", "数据集": "dataset", "提示词": "prompt", "类别": "category",
    "语言": "language", "上下文": "context", "并发数": "concurrency", "并发": "concurrency", "批大小": "batch size",
    "草稿总数": "drafted tokens", "接受数": "accepted tokens", "步数": "steps", "轮数": "rounds",
    "显存带宽": "memory bandwidth", "内存带宽": "memory bandwidth", "带宽": "bandwidth",
}  # fmt: skip
_LONGEST = max(map(len, _WORDS))
_CHINESE = re.compile(r"[\u3400-\u9fff]")


def in_english(text: str) -> str:
    """The text with its Chinese words in English; unchanged where it has none. `unknown` stands for the others."""
    if not _CHINESE.search(text):
        return text
    text = text.translate(_SIMPLIFIED)
    out: list[str] = []
    at = 0
    while at < len(text):
        for size in range(min(_LONGEST, len(text) - at), 0, -1):
            if (word := _WORDS.get(text[at : at + size].lower())) is not None:
                out.append(f" {word} ")
                at += size
                break
        else:
            out.append(" unknown " if _CHINESE.match(text[at]) else text[at])
            at += 1
    return "".join(out)
